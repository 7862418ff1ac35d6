"""TrainingModel: the step of the whole batch, whatever it is cut into, compiled into, kept in."""

import dataclasses
import inspect
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertBackbone, BertPretrainer, BertTextClassifier, BertTokenizer, ops
from bert_tf.adapt import DistillationModel
from bert_tf.errors import UserError
from bert_tf.training import LAMB, AdamWeightDecay, WarmupCosineDecay, WarmupLinearDecay
from bert_tf.training.optimizers.adam_weight_decay import INITIAL_LOSS_SCALE
from bert_tf.training.training_model import TrainingModel
from tests.models import one_layer
from tests.models.one_layer import (
    OneLayer,
    assert_near,
    assert_step_is_kerass,
    compiled,
    linear_model,
    rows_of_numbers,
)


@pytest.mark.parametrize(
    ("kind", "added"),
    [
        (TrainingModel, ["token_budget"]),
        (BertTextClassifier, ["token_budget"]),
        (DistillationModel, ["token_budget"]),
    ],
)
def test_fit_shows_the_arguments_that_it_takes(kind, added):
    expected = inspect.signature(keras.Model.fit).parameters
    received = inspect.signature(kind.fit).parameters
    assert [*received] == [*expected, *added]
    assert all(received[name] == expected[name] for name in expected)


def weights_of(model):
    return [variable.numpy() for variable in model.trainable_variables]


# Of 8 rows, and at last of 1: the whole batch, unequal parts, more parts than rows.
@pytest.mark.parametrize("parts", [1, 3, 16])
def test_a_step_is_that_of_the_whole_batch(parts):
    """Loss, metrics, weights; the norm before the clip; a schedule that goes on once per step."""
    model = compiled(parts)
    assert_near(one_layer.fitted(model), one_layer.expected_fit())
    assert int(model.optimizer.iterations) == one_layer.STEPS + 1


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_weight_without_a_gradient_stays(parts):
    model = compiled(parts, model=OneLayer(has_unused=True))
    one_layer.fitted(model)
    np.testing.assert_array_equal(model.unused, np.ones(3))  # nor does it decay


def test_evaluation_is_that_of_all_rows():
    received = compiled().evaluate(one_layer.batches(), verbose=0, return_dict=True)
    assert_near(received, one_layer.expected_evaluation())


class TableOnTop(TrainingModel):
    """A user's table, which has a sparse gradient."""

    def __init__(self):
        super().__init__()
        self.table = keras.layers.Embedding(2, 1, embeddings_initializer="ones")
        self.build([None])

    def build(self, shape):
        self.table.build(shape)
        self.built = True

    def call(self, ids):
        return self.table(ids)


def test_a_row_of_a_users_table_is_read_twice():
    """Keras's optimizers would square each of the two gradients, not their sum."""
    model = TableOnTop()
    model.compile(keras.optimizers.Adam(0.01), loss="mse")
    model.train_on_batch(np.array([0, 0, 1]), np.zeros([3, 1], np.float32))
    np.testing.assert_allclose(model.table.embeddings, np.full([2, 1], 0.99), rtol=1e-6)


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


def test_xla_compiles_the_step():
    model = compiled(parts=2, jit_compile=True)
    received = one_layer.fitted(model, drop_remainder=True)
    assert_near(received, one_layer.expected_fit(drop_remainder=True))


def test_xla_needs_parts_of_one_size():
    with pytest.raises(UserError, match="multiple of"):
        one_layer.fitted(compiled(parts=3, jit_compile=True))


def test_on_a_gpu_the_native_ops_run_without_xla(monkeypatch):
    # Keras's default where it sees a GPU is XLA, which would need the padding back.
    gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind=None: [gpu])
    model = OneLayer()
    for backend, arguments, expected in (
        ("reference", {}, True),
        ("native", {}, False),
        ("native", {"jit_compile": "auto"}, False),
        ("native", {"jit_compile": True}, True),
    ):
        with ops.backend(backend):
            model.compile("sgd", **arguments)
        assert model.jit_compile is expected, (backend, arguments)


@pytest.fixture(scope="module")
def one_block(tiny_config):
    return dataclasses.replace(tiny_config, num_hidden_layers=1)


@pytest.fixture(scope="module")
def without_dropout(one_block):
    return dataclasses.replace(one_block, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def masked_words(rows=6, length=7, places=3):
    """A batch for `BertPretrainer`, with padding; most rows have few masked words."""
    rng = np.random.default_rng(5)
    masks = np.array([3, 3, 1, 0, 1, 0])
    features = {
        "token_ids": rng.integers(5, 64, [rows, length]).astype(np.int32),
        "padding_mask": np.arange(length) < rng.integers(4, length + 1, [rows, 1]),
        "masked_positions": np.tile([3, 0, 1], [rows, 1]).astype(np.int32),
    }
    labels = {
        "masked_ids": rng.integers(5, 64, [rows, places]).astype(np.int32),
        "masked_weights": (np.arange(places) < masks[:, None]).astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, rows).astype(np.int32),
    }
    return features, labels


def pretrained(backbone, parts=1, optimizer=None, **options):
    """The logs of two steps of a pre-trainer and what they added to each weight."""
    keras.utils.set_random_seed(1)  # of weights and dropout
    model = BertPretrainer(BertBackbone(**backbone), dtype=backbone.get("dtype"))
    optimizer = AdamWeightDecay(1e-3) if optimizer is None else optimizer
    model.compile(optimizer, gradient_accumulation_steps=parts, **options)
    before = weights_of(model)
    data = tf.data.Dataset.from_tensors(masked_words()).repeat(2)
    logs = model.fit(data, verbose=0, shuffle=False).history
    changes = [after - first for after, first in zip(weights_of(model), before)]
    return logs | {str(index): change for index, change in enumerate(changes)}


@pytest.mark.parametrize("padding_free", [True, pytest.param(False, marks=pytest.mark.full)])
def test_recompute_gives_the_same_steps(one_block, padding_free):
    options = {"config": one_block, "padding_free": padding_free}
    expected = pretrained(options, run_eagerly=True)
    assert_near(pretrained({**options, "gradient_checkpointing": True}), expected, 1e-5)


def test_a_bert_in_parts(without_dropout):
    """In a graph, where masked words are counted over parts of unequal size."""
    options = {"config": without_dropout}
    whole = pretrained(options, run_eagerly=True)
    assert_near(pretrained(options, parts=4), whole, 1e-4)


POLICIES = [("mixed_bfloat16", 0.05), ("mixed_float16", 0.01)]


@pytest.mark.parametrize("policy, tolerance", POLICIES)
def test_mixed_precision_takes_the_same_steps(policy, tolerance):
    model = compiled(parts=3, model=OneLayer(policy))
    assert_near(one_layer.fitted(model), one_layer.expected_fit(), tolerance)
    assert all(variable.dtype == "float32" for variable in model.trainable_variables)
    assert model.optimizer.dynamic_loss_scale == (policy == "mixed_float16")


@pytest.mark.parametrize("policy, tolerance", POLICIES)
def test_mixed_precision_of_a_bert(without_dropout, policy, tolerance):
    """In float16 also with all else that changes a step: recomputed, traced, in parts."""
    options, step = {"config": without_dropout, "dtype": policy}, {"run_eagerly": True}
    if policy == "mixed_float16":
        options["gradient_checkpointing"], step = True, {"parts": 2}

    def optimizer():
        return AdamWeightDecay(0.1, epsilon=0.1)  # its steps depend on the size of the gradient

    whole = pretrained({"config": without_dropout}, optimizer=optimizer(), run_eagerly=True)
    received = pretrained(options, optimizer=optimizer(), **step)
    for name in set(whole) - {"next_sentence_accuracy", "masked_lm_accuracy"}:
        error = np.linalg.norm(np.subtract(received[name], whole[name]))
        assert error <= tolerance * np.linalg.norm(whole[name]), name
    model = BertPretrainer(BertBackbone(without_dropout, dtype=policy), dtype=policy)
    features = masked_words()[0]
    assert model(features)["masked_logits"].dtype == tf.float32
    assert model.backbone(features)["sequence_output"].dtype == policy.removeprefix("mixed_")


@pytest.mark.parametrize("optimizer", [AdamWeightDecay, LAMB])
def test_a_step_that_overflows_is_left_out(optimizer):
    model = compiled(optimizer=optimizer(1e-2), model=OneLayer("mixed_float16"))
    model.optimizer.build(model.trainable_variables)
    model.optimizer.loss_scale.assign(2.0**60)
    before, data = weights_of(model), one_layer.batches().take(1)
    logs = model.fit(data, verbose=0, shuffle=False).history
    for first, second in zip(before, weights_of(model)):
        np.testing.assert_array_equal(first, second)
    assert logs["gradient_norm"] == [0.0]  # no step was taken
    assert int(model.optimizer.iterations) == 0
    assert float(model.optimizer.loss_scale) == 2.0**59
    model.optimizer.loss_scale.assign(INITIAL_LOSS_SCALE)
    logs = model.fit(data, verbose=0, shuffle=False).history
    expected = one_layer.expected_fit()["gradient_norm"][0]
    np.testing.assert_allclose(logs["gradient_norm"], expected, rtol=1e-2)
    assert int(model.optimizer.iterations) == 1
    assert any((a != b).any() for a, b in zip(before, weights_of(model)))


def test_wrong_number_of_parts():
    with pytest.raises(UserError, match="gradient_accumulation_steps=0"):
        compiled(parts=0)


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


class Counted(BertTextClassifier):
    """A classifier that knows which steps were traced."""

    def train_step(self, data):
        self.traces.append("train")
        return super().train_step(data)

    def test_step(self, data):
        self.traces.append("test")
        return super().test_step(data)


@pytest.fixture
def counted(one_block, tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, lowercase=False)
    model = Counted(BertBackbone(one_block), tokenizer=tokenizer)
    model.traces = []
    return model


def test_text_of_all_lengths_is_traced_once(counted, caplog):
    model, traces = counted, counted.traces
    model.compile(AdamWeightDecay(1e-3), steps_per_execution=4)
    texts = ["a " * length for length in range(1, 21)]
    labels = np.arange(20) % 2
    for epochs in (2, 1):
        held_out = texts[::-1], labels
        model.fit(texts, labels, batch_size=2, epochs=epochs, verbose=0, validation_data=held_out)
    # The first call of a function that makes variables (of the optimizer) traces twice.
    assert traces.count("train") <= 2 and traces.count("test") <= 2
    assert "retracing" not in caplog.text


@pytest.mark.parametrize("is_compiled", [False, True])
def test_fit_again_does_not_trace_again(counted, is_compiled):
    """Another run of the schedule has other numbers, which the graph reads from a variable."""
    if is_compiled:
        schedule = WarmupCosineDecay(1e-3, num_warmup_steps=1)
        counted.compile(AdamWeightDecay(schedule), metrics=["accuracy"])
    texts, labels = ["a", "a a", "a a a", "a"] * 2, [0, 1, 0, 1] * 2
    counted.fit(texts, labels, batch_size=2, verbose=0)
    before = len(counted.traces)
    counted.fit(texts, labels, batch_size=2, verbose=0)
    counted.fit(texts[:6], labels[:6], batch_size=1, epochs=3, verbose=0)
    assert len(counted.traces) == before
    rates = counted.optimizer.learning_rate
    np.testing.assert_allclose(rates, 0.0, atol=1e-12)  # the end of a run of 18 steps
    counted.optimizer.learning_rate = WarmupLinearDecay(1e-3)
    weights = counted.classifier.get_weights()[0]
    counted.fit(texts, labels, verbose=0)
    assert len(counted.traces) > before  # another schedule is another graph
    assert np.abs(counted.classifier.get_weights()[0] - weights).max() > 1e-4


def test_functions_that_run_eagerly_are_not_traced(counted):
    texts, labels = ["a", "a a", "a a a", "a"], [0, 1, 0, 1]
    tf.config.run_functions_eagerly(True)
    try:
        counted.fit(texts, labels, batch_size=2, epochs=2, verbose=0)
        counted.evaluate(texts, labels, batch_size=2, verbose=0)
    finally:
        tf.config.run_functions_eagerly(False)
    assert (counted.traces.count("train"), counted.traces.count("test")) == (4, 2)


def test_run_eagerly_may_be_set_after_compile(counted):
    texts, labels = ["a", "a a"], [0, 1]
    counts = []
    for run_eagerly in (False, True, False):
        counted.run_eagerly = run_eagerly
        counted.traces.clear()
        counted.fit(texts, labels, batch_size=1, verbose=0)
        counted.evaluate(texts, labels, batch_size=1, verbose=0)
        counts.append((counted.traces.count("train"), counted.traces.count("test")))
    assert counts[1:] == [(2, 2), (0, 0)]  # each batch; the graphs of before
