"""TrainingModel: the step of the whole batch, whatever it is cut into, compiled into, kept in."""

import dataclasses
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer, BertTextClassifier, BertTokenizer, ops
from bert_tf.errors import UserError
from bert_tf.models.training_model import TrainingModel
from bert_tf.training import LAMB, AdamWeightDecay
from bert_tf.training.clipped_optimizer import INITIAL_LOSS_SCALE
from tests.models.replicas import (
    ROWS,
    assert_step_is_kerass,
    examples,
    fitted,
    linear_model,
    model_and_optimizer,
    rows_of_numbers,
)


def weights_of(model):
    return [variable.numpy() for variable in model.trainable_variables]


def assert_same_training(a, b, logs_a, logs_b, tolerance=1e-5):
    for name in logs_a:
        if name != "perplexity":
            np.testing.assert_allclose(logs_a[name], logs_b[name], atol=tolerance, err_msg=name)
    for first, second in zip(weights_of(a), weights_of(b)):
        np.testing.assert_allclose(first, second, atol=10 * tolerance)


@pytest.fixture(scope="module")
def whole():
    model = model_and_optimizer()
    return model, fitted(model)


@pytest.mark.parametrize("parts", [3, 16])  # 8 rows: unequal parts, more parts than rows
def test_accumulation_is_the_large_batch(whole, parts):
    model = model_and_optimizer(gradient_accumulation_steps=parts)
    logs = fitted(model)
    assert_same_training(model, whole[0], logs, whole[1])
    assert int(model.optimizer.iterations) == 20


def test_gradient_norm_is_logged(whole):
    model = model_and_optimizer()
    features, labels = tf.nest.map_structure(lambda values: values[:ROWS], examples())
    with tf.GradientTape() as tape:
        loss = model.compute_loss(features, labels, model(features))
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
    np.testing.assert_allclose(
        whole[1]["gradient_norm"][0], tf.linalg.global_norm(gradients), rtol=1e-5
    )
    assert "gradient_norm" not in model.evaluate(features, labels, verbose=0, return_dict=True)


REDUCTIONS = ("sum", "mean", "sum_over_batch_size", "mean_with_sample_weight")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_a_loss_adds_up_as_it_is_reduced(reduction, weighted):
    loss = keras.losses.MeanSquaredError(reduction=reduction)
    assert_step_is_kerass(loss, rows_of_numbers(weighted))


@pytest.mark.parametrize(
    "loss", ["mse", keras.losses.mean_squared_error, lambda y, y_pred: tf.abs(y - y_pred)[:, 0]]
)
def test_losses_without_a_reduction_are_means(loss):
    assert_step_is_kerass(loss, rows_of_numbers(weighted=True))


@pytest.mark.parametrize("names", [("a", "b"), (0, 1)])
def test_losses_of_several_outputs(names):
    x, y, weights = rows_of_numbers(weighted=True)
    losses = [
        keras.losses.MeanSquaredError(reduction="sum"),
        keras.losses.MeanAbsoluteError(reduction="mean_with_sample_weight"),
    ]
    if names == ("a", "b"):
        losses, y = dict(zip(names, losses)), {"a": y, "b": 2 * y}
    else:
        y = [y, 2 * y]
    assert_step_is_kerass(losses, (x, y, weights), names=names, loss_weights=[0.5, 2.0])


def test_losses_of_layers_count_once():
    assert_step_is_kerass("mse", rows_of_numbers(False), regularizer=keras.regularizers.L2(0.5))


class OwnCall(keras.losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return tf.reduce_sum(tf.square(y_true - y_pred))


class OwnLoss(TrainingModel):
    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(tf.square(y - y_pred))


@pytest.mark.parametrize(
    "model, loss, message",
    [
        (TrainingModel, keras.losses.MeanSquaredError(reduction="none"), "reduction='none'"),
        (TrainingModel, [OwnCall()], "overrides __call__"),
        (TrainingModel, "crossentropy", "which cross-entropy"),
        (OwnLoss, None, "OwnLoss.compute_loss alone"),
    ],
)
def test_losses_that_cannot_be_cut_up(model, loss, message):
    model().compile("sgd", loss)
    with pytest.raises(UserError, match=message):
        model().compile("sgd", loss, gradient_accumulation_steps=2)


def test_a_loss_of_all_rows_cannot_be_cut_up():
    model = linear_model(TrainingModel)
    model.compile(
        "sgd",
        lambda y, y_pred: tf.reduce_mean(tf.square(y - y_pred)),
        run_eagerly=True,
        gradient_accumulation_steps=2,
    )
    with pytest.raises(UserError, match="one number for all"):
        model.train_on_batch(*rows_of_numbers(False)[:2])


def test_xla_compiles_the_step(whole):
    model = model_and_optimizer()
    model.compile(model.optimizer, jit_compile=True, gradient_accumulation_steps=2)
    logs = fitted(model, steps=3)
    for name in ("loss", "masked_lm_loss", "gradient_norm", "masked_lm_accuracy"):
        np.testing.assert_allclose(logs[name], whole[1][name][:3], atol=1e-5, err_msg=name)


def test_xla_needs_parts_of_one_size():
    model = model_and_optimizer()
    model.compile("sgd", jit_compile=True, gradient_accumulation_steps=3)
    with pytest.raises(UserError, match="multiple of"):
        fitted(model, steps=1)


def test_on_a_gpu_the_native_ops_run_without_xla(monkeypatch):
    # Keras's default where it sees a GPU is XLA, which would need the padding back.
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [gpu])
    model = model_and_optimizer()
    for backend, arguments, expected in (
        ("reference", {}, True),
        ("native", {}, False),
        ("native", {"jit_compile": "auto"}, False),
        ("native", {"jit_compile": True}, True),
    ):
        with ops.backend(backend):
            model.compile("sgd", **arguments)
        assert model.jit_compile is expected, (backend, arguments)


@pytest.mark.parametrize("padding_free", [True, False])
def test_recompute_gives_the_same_steps(tiny_config, padding_free):
    features, labels = examples(4)
    results = []
    for recompute in (False, True):
        keras.utils.set_random_seed(1)  # of weights and dropout
        backbone = BertBackbone(tiny_config, padding_free=padding_free, recompute=recompute)
        model = BertPretrainer(backbone)
        model.compile(AdamWeightDecay(1e-3))
        logs = model.fit(features, labels, batch_size=ROWS, shuffle=False, verbose=0).history
        results.append((logs["loss"], logs["gradient_norm"], weights_of(model)))
    np.testing.assert_allclose(results[0][:2], results[1][:2], rtol=1e-6)
    for first, second in zip(results[0][2], results[1][2]):
        np.testing.assert_allclose(first, second, atol=1e-6)


@pytest.mark.parametrize("policy, recompute", [("mixed_bfloat16", False), ("mixed_float16", True)])
def test_mixed_precision_learns(tiny_config, policy, recompute):
    keras.utils.set_random_seed(0)
    features, labels = examples(1)
    model = BertPretrainer(
        BertBackbone(tiny_config, dtype=policy, recompute=recompute), dtype=policy
    )
    model.compile(AdamWeightDecay(5e-3), gradient_accumulation_steps=2)
    assert model(features)["masked_logits"].dtype == tf.float32
    assert model.backbone(features)["sequence_output"].dtype == policy.removeprefix("mixed_")
    dataset = tf.data.Dataset.from_tensors((features, labels)).repeat(60)
    model.fit(dataset, verbose=0, shuffle=False)
    logs = model.evaluate(features, labels, batch_size=ROWS, verbose=0, return_dict=True)
    assert logs["masked_lm_accuracy"] > 0.8
    assert all(variable.dtype == "float32" for variable in model.trainable_variables)
    assert model.optimizer.dynamic_loss_scale == (policy == "mixed_float16")


@pytest.mark.parametrize("optimizer", [AdamWeightDecay, LAMB])
def test_a_step_that_overflows_is_left_out(tiny_config, optimizer):
    features, labels = examples(1)
    model = BertPretrainer(BertBackbone(tiny_config, dtype="mixed_float16"), dtype="mixed_float16")
    model.compile(optimizer(1e-2))
    model.optimizer.build(model.trainable_variables)
    model.optimizer.loss_scale.assign(2.0**60)
    before = weights_of(model)
    data = tf.data.Dataset.from_tensors((features, labels))
    model.fit(data, verbose=0, shuffle=False)
    for first, second in zip(before, weights_of(model)):
        np.testing.assert_array_equal(first, second)
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.loss_scale) == 2.0**59
    model.optimizer.loss_scale.assign(INITIAL_LOSS_SCALE)
    model.fit(data, verbose=0, shuffle=False)
    assert int(model.optimizer.iterations) == 1
    assert any((a != b).any() for a, b in zip(before, weights_of(model)))


def test_wrong_number_of_parts():
    with pytest.raises(UserError, match="gradient_accumulation_steps=0"):
        model_and_optimizer(gradient_accumulation_steps=0)


class BatchEnds(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.ends = []

    def on_train_batch_end(self, batch, logs=None):
        self.ends.append(batch)

    def on_test_batch_end(self, batch, logs=None):
        self.ends.append(batch)


@pytest.mark.parametrize("known", [True, False])  # how many batches there are
@pytest.mark.parametrize("rows", [20, 3])  # 10 batches; fewer than one execution
def test_several_steps_per_execution(rows, known):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=(rows, 1))
    data = tf.data.Dataset.from_tensor_slices((x, y.astype(np.float32))).batch(2)
    data = data if known else data.filter(lambda *_: True)
    results = []
    for base in (keras.Model, TrainingModel):
        model, ends = linear_model(base), BatchEnds()
        model.compile(keras.optimizers.SGD(0.1), "mse", steps_per_execution=4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the end of the data
            logs = model.fit(data, epochs=3, verbose=0, callbacks=[ends], validation_data=data)
            evaluated = model.evaluate(data, verbose=0, callbacks=[ends])
            predicted = model.predict(data, verbose=0)
        results.append((logs.history, evaluated, predicted, ends.ends, model.get_weights()))
    (plain, *expected), (mine, *received) = results
    for name in plain:
        np.testing.assert_allclose(mine[name], plain[name], rtol=1e-5)
    for ours, theirs in zip(received[:3], expected[:3]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    for ours, theirs in zip(received[3], expected[3]):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_text_of_all_lengths_is_traced_once(tiny_config, tiny_vocabulary, caplog):
    traces = []

    class Counted(BertTextClassifier):
        def train_step(self, data):
            traces.append("train")
            return super().train_step(data)

        def test_step(self, data):
            traces.append("test")
            return super().test_step(data)

    config = dataclasses.replace(tiny_config, num_hidden_layers=1)
    model = Counted(BertBackbone(config), tokenizer=BertTokenizer(tiny_vocabulary))
    model.compile(AdamWeightDecay(1e-3), steps_per_execution=4)
    texts = ["a " * length for length in range(1, 21)]
    labels = np.arange(20) % 2
    for epochs in (2, 1):
        held_out = texts[::-1], labels
        model.fit(texts, labels, batch_size=2, epochs=epochs, verbose=0, validation_data=held_out)
    # The first call of a function that makes variables (of the optimizer) traces twice.
    assert traces.count("train") <= 2 and traces.count("test") <= 2
    assert "retracing" not in caplog.text
