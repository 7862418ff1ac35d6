"""Schedules that `fit` spreads over its steps, and the steps of a `fit`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.training import (
    AdamWeightDecay,
    Noam,
    TrainingCheckpoint,
    WarmupCosineDecay,
    WarmupLinearDecay,
    fit_steps,
)
from bert_tf.training.schedules import one_run
from bert_tf.training.training_model import TrainingModel

X, Y = np.ones([10, 1], np.float32), np.zeros([10, 1], np.float32)


class Line(TrainingModel):
    """One weight."""

    def __init__(self):
        super().__init__()
        self.line = keras.layers.Dense(1, name="line")
        self.build([None, 1])

    def build(self, shape):
        self.line.build(shape)
        self.built = True

    def call(self, inputs):
        return self.line(inputs)


def compiled(schedule, **options):
    model = Line()
    model.compile(AdamWeightDecay(schedule), loss="mse", **options)
    return model


class Rates(keras.callbacks.Callback):
    """The rate of every step, as the optimizer computes it."""

    def __init__(self):
        super().__init__()
        self.rates = []

    def on_train_batch_begin(self, batch, logs=None):
        self.rates.append(float(self.model.optimizer.learning_rate))


def rates_of(model, *args, **options):
    callback = Rates()
    model.fit(*args, verbose=0, callbacks=[callback], **options)
    return callback.rates


def linear(num_steps, num_warmup_steps):
    schedule = WarmupLinearDecay(1.0, num_steps, num_warmup_steps)
    return [float(schedule(step)) for step in range(num_steps)]


BATCHES = tf.data.Dataset.from_tensor_slices((X, Y)).batch(4)


class Batches(keras.utils.PyDataset):
    """Three batches of four rows."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return X[:4], Y[:4]


@pytest.mark.parametrize(
    "data, options, steps",
    [
        ((X, Y), {"batch_size": 4}, 3),
        ((X, Y), {}, 1),  # 32 rows, Keras's own size
        ((X, Y), {"batch_size": 4, "validation_split": 0.2}, 2),
        ((BATCHES,), {}, 3),
        ((BATCHES.repeat(),), {"steps_per_epoch": 5}, 5),
        ((Batches(),), {}, 3),
    ],
    ids=["arrays", "default", "split", "dataset", "given", "py_dataset"],
)
def test_a_run_has_the_steps_of_all_epochs(data, options, steps):
    model = compiled(WarmupLinearDecay(1.0, warmup=0.25), run_eagerly=True)
    rates = rates_of(model, *data, epochs=2, **options)
    assert rates == pytest.approx(linear(2 * steps, steps // 2))


def test_the_traced_step_has_the_rates_of_the_run():
    """Each `fit` is a run of its own: with one long run, the second would be slower."""
    models = [
        compiled(WarmupLinearDecay(1e-2, warmup=0.5)),
        compiled(WarmupLinearDecay(1e-2, 6, 3)),
    ]
    for model in models:
        model.set_weights([np.ones([1, 1]), np.zeros([1])])
        model.fit(X, Y, batch_size=4, epochs=2, verbose=0)
    np.testing.assert_array_equal(*(model.get_weights()[0] for model in models))
    before = models[0].get_weights()[0]
    assert rates_of(models[0], X, Y, epochs=2) == pytest.approx([0.0, 0.005])
    assert abs(models[0].get_weights()[0] - before) > 1e-4
    before = models[1].get_weights()[0]
    models[1].fit(X, Y, epochs=2, verbose=0)  # its run is over
    np.testing.assert_array_equal(models[1].get_weights()[0], before)


def test_a_run_goes_on_at_its_epoch():
    model = compiled(WarmupCosineDecay(1.0, warmup=0.5), run_eagerly=True)
    whole = rates_of(model, X, Y, batch_size=4, epochs=4)
    model = compiled(WarmupCosineDecay(1.0, warmup=0.5), run_eagerly=True)
    model.optimizer.iterations.assign(6)
    rest = rates_of(model, X, Y, batch_size=4, initial_epoch=2, epochs=4)
    assert rest == pytest.approx(whole[6:])


SCHEDULES = {
    "linear": lambda: WarmupLinearDecay(1.0, 9, 4),
    "linear, spread": lambda: WarmupLinearDecay(1.0, warmup=0.5),
    "cosine": lambda: WarmupCosineDecay(1.0, 9, 4),
    "cosine, spread": lambda: WarmupCosineDecay(1.0, warmup=0.5),
    "Noam": lambda: Noam(16, 4),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in ("linear, spread", "cosine") else ())
        for name in SCHEDULES
    ],
)
def test_a_new_optimizer_begins_at_the_initial_epoch(name, tmp_path):
    """The next `fit` and one after a checkpoint go on from its step, as if it had counted it."""

    def model(steps_done=0):
        model = compiled(SCHEDULES[name](), run_eagerly=True)
        model.optimizer.iterations.assign(steps_done)
        return model

    data = {"x": X, "y": Y, "batch_size": 4, "epochs": 3}
    whole = rates_of(model(), **data)
    for steps_done in (0, 3):
        rates = rates_of(model(steps_done), **data, initial_epoch=1)
        assert rates == pytest.approx(whole[3:])
    in_steps = Rates()
    batches = BATCHES.repeat()
    fit_steps(model(), batches.skip, 9, initial_step=4, steps_per_epoch=3, callbacks=[in_steps])
    assert in_steps.rates == pytest.approx(whole[4:])
    again, checkpoint = model(), TrainingCheckpoint(tmp_path)
    with one_run(again, 3, 9):
        again.fit(X, Y, batch_size=4, verbose=0, callbacks=[checkpoint])
    again = model()
    assert TrainingCheckpoint(tmp_path).restore(again) == 3
    assert rates_of(again, X, Y, batch_size=4) == pytest.approx(whole[6:])


def test_fit_steps_is_one_run():
    rates = Rates()
    model = compiled(WarmupLinearDecay(1.0, warmup=0.3), run_eagerly=True)
    fit_steps(
        model, lambda step: BATCHES.repeat().skip(step), 10, steps_per_epoch=4, callbacks=[rates]
    )
    assert rates.rates == pytest.approx(linear(10, 3))
    assert rates_of(model, X, Y) == [1.0]  # and then the next


def test_a_restored_checkpoint_keeps_the_run(tmp_path):
    model = compiled(WarmupLinearDecay(1.0, warmup=0.5), run_eagerly=True)
    checkpoint = TrainingCheckpoint(tmp_path, save_every=3)
    stop = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: setattr(model, "stop_training", True)
    )
    data = BATCHES.repeat()
    model.fit(data, steps_per_epoch=8, verbose=0, callbacks=[checkpoint, stop])
    again = compiled(WarmupLinearDecay(1.0, warmup=0.5), run_eagerly=True)
    step = TrainingCheckpoint(tmp_path).restore(again)
    assert step == 1
    assert rates_of(again, data, steps_per_epoch=8 - step) == pytest.approx(linear(8, 4)[1:])
    assert len(rates_of(again, data, steps_per_epoch=2)) == 2
    assert again.optimizer.learning_rate.numpy() == 0.0  # the end of the second run


def test_what_is_not_known_says_what_to_give():
    model = compiled(WarmupLinearDecay(1.0, warmup=0.1), run_eagerly=True)
    with pytest.raises(UserError, match="num_train_steps=None. Pass `WarmupLinearDecay"):
        model.optimizer.learning_rate  # noqa: B018
    with pytest.raises(UserError, match="num_train_steps"):
        model.train_on_batch(X, Y)
    begun = compiled(WarmupLinearDecay(1.0, 100), run_eagerly=True)
    with pytest.raises(UserError, match="initial_epoch=1, x=_FilterDataset of unknown length"):
        begun.fit(BATCHES.filter(lambda *_: True), initial_epoch=1, epochs=2, verbose=0)
    for data in (BATCHES.repeat(), BATCHES.filter(lambda *_: True), (batch for batch in BATCHES)):
        with pytest.raises(UserError, match="Pass `steps_per_epoch` to `fit`"):
            model.fit(data, verbose=0)
    short = compiled(WarmupLinearDecay(1.0, num_warmup_steps=5), run_eagerly=True)
    with pytest.raises(UserError, match="num_warmup_steps=5, num_train_steps=3"):
        short.fit(BATCHES, verbose=0)


def test_a_saved_model_has_an_open_schedule(tmp_path):
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(AdamWeightDecay(WarmupLinearDecay(1e-3, warmup=0.1)), loss="mse")
    model.build([None, 1])
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    schedule = keras.saving.serialize_keras_object(again.optimizer)["config"]["learning_rate"]
    assert schedule["config"] == {
        "learning_rate": 1e-3, "num_train_steps": None, "num_warmup_steps": 0, "warmup": 0.1,
        "decay_after_warmup": False,
    }  # fmt: skip
