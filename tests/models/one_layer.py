"""Models of one layer, which are quick to trace, and what `TrainingModel` must do in a step.

`OneLayer` is compared with its formula in NumPy: softmax cross-entropy on the mean of a row's
embeddings, the gradient by hand, the original's Adam with its clip by the global norm. `Linear`
models are compared with plain Keras.

Glossary: `B` rows, `T` ids of a row, `E` size of an embedding, `C` classes.
"""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training import AdamWeightDecay, WarmupLinearDecay
from bert_tf.training.training_model import TrainingModel
from tests.training.optimizers.original_adam import OriginalAdam

ROWS, LENGTH, IDS, SIZE, CLASSES = 8, 5, 12, 6, 4
STEPS = 6
PEAK, WARMUP = 0.3, 2  # of the learning rate
# An epsilon this large makes the length of a step depend on that of the gradient.
OPTIMIZER = {"clip_norm": 1.0, "epsilon": 0.1}


class OneLayer(TrainingModel):
    """Ids `[B, T]` to logits `[B, C]`. The table's gradient comes as rows of it, `IndexedSlices`.

    Args:
        dtype: Of the layers.
        has_unused: Whether there is a weight that no output depends on.
    """

    def __init__(self, dtype=None, has_unused: bool = False):
        super().__init__(dtype=dtype)
        self.table = keras.layers.Embedding(IDS, SIZE, dtype=dtype)
        self.head = keras.layers.Dense(CLASSES, dtype=dtype)
        if has_unused:
            self.unused = self.add_weight(shape=[3], initializer="ones", name="unused")
        self(tf.zeros([1, LENGTH], tf.int32))

    def call(self, ids):
        return self.head(tf.reduce_mean(self.table(ids), axis=1))  # [B, T, E] -> [B, C]


def first_weights() -> dict[str, np.ndarray]:
    """What every model starts from, by leaf name."""
    rng = np.random.default_rng(3)
    shapes = {"embeddings": [IDS, SIZE], "kernel": [SIZE, CLASSES], "bias": [CLASSES]}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def compiled(parts: int = 1, optimizer=None, model=None, **options) -> OneLayer:
    """A `OneLayer` at `first_weights`, with a loss that is divided by the weights of the rows."""
    model = model or OneLayer()
    for variable in model.trainable_variables:
        if variable.name in first_weights():
            variable.assign(first_weights()[variable.name])
    model.compile(
        optimizer or AdamWeightDecay(WarmupLinearDecay(PEAK, STEPS + 1, WARMUP), **OPTIMIZER),
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        ),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        gradient_accumulation_steps=parts,
        **options,
    )
    return model


def examples(count: int = STEPS * ROWS + 1):
    """Ids `[n, T]`, labels and weights `[n]`.

    The last batch is one row, which leaves the second of two replicas without any; the first half
    of a batch has nearly all the weight, and the second half of the third batch none.
    """
    rng = np.random.default_rng(5)
    ids = rng.integers(0, IDS, [count, LENGTH]).astype(np.int32)
    labels = rng.integers(0, CLASSES, count).astype(np.int32)
    place = np.arange(count) % ROWS
    weights = np.where(place < ROWS // 2, 2.0, 0.1) * rng.uniform(0.5, 1.0, count)
    weights[(np.arange(count) // ROWS == 2) & (place >= ROWS // 2)] = 0.0
    return ids, labels, weights.astype(np.float32)


def batches(drop_remainder: bool = False) -> tf.data.Dataset:
    """`examples` in batches of `ROWS`."""
    return tf.data.Dataset.from_tensor_slices(examples()).batch(ROWS, drop_remainder)


class _Steps(keras.callbacks.Callback):
    """Keeps each step's own values: the metrics are reset before it."""

    def __init__(self):
        super().__init__()
        self.logs = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()

    def on_train_batch_end(self, batch, logs=None):
        self.logs.append({name: float(value) for name, value in logs.items()})


def fitted(model, drop_remainder: bool = False) -> dict[str, np.ndarray]:
    """Trains on `batches`; each step's logs, by name, and the weights after the last step."""
    record = _Steps()
    model.fit(batches(drop_remainder), verbose=0, shuffle=False, callbacks=[record])
    weights = {variable.name: variable.numpy() for variable in model.trainable_variables}
    return {name: np.array([log[name] for log in record.logs]) for name in record.logs[0]} | weights


def _probabilities(weights, ids):
    """What a row is seen as `[B, E]`, and the probabilities of the classes `[B, C]`."""
    x = weights["embeddings"][ids].mean(axis=1)  # [B, T, E] -> [B, E]
    logits = x @ weights["kernel"] + weights["bias"]
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return x, exponentials / exponentials.sum(axis=1, keepdims=True)


def _numpy_loss(weights, ids, labels, row_weights):
    """The loss, the accuracy and the gradients, by leaf name."""
    x, probabilities = _probabilities(weights, ids)
    total = row_weights.sum()
    rows = np.arange(len(ids))
    loss = (row_weights * -np.log(probabilities[rows, labels])).sum() / total
    accuracy = (row_weights * (probabilities.argmax(axis=1) == labels)).sum() / total
    slope = probabilities * 1.0
    slope[rows, labels] -= 1.0
    slope *= row_weights[:, None] / total  # of the logits [B, C]
    table = np.zeros([IDS, SIZE])
    np.add.at(table, ids, (slope @ weights["kernel"].T)[:, None] / LENGTH)
    return loss, accuracy, {"embeddings": table, "kernel": x.T @ slope, "bias": slope.sum(axis=0)}


def expected_fit(drop_remainder: bool = False) -> dict[str, np.ndarray]:
    """What `fitted` must give, however a batch is cut up."""
    weights, adam = first_weights(), OriginalAdam(**OPTIMIZER)
    logs = {"loss": [], "accuracy": [], "gradient_norm": []}
    for step, batch in enumerate(batches(drop_remainder).as_numpy_iterator()):
        loss, accuracy, gradients = _numpy_loss(weights, *batch)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        for name, value in zip(logs, (loss, accuracy, norm)):
            logs[name].append(value)
        rate = PEAK * (step / WARMUP if step < WARMUP else 1 - step / (STEPS + 1))
        adam.apply(weights, gradients, rate)
    clip = OPTIMIZER["clip_norm"]
    assert min(logs["gradient_norm"]) < clip < max(logs["gradient_norm"])  # both are shown
    return {name: np.array(values) for name, values in logs.items()} | weights


def expected_evaluation() -> dict[str, float]:
    """What `evaluate` on `batches` must give at `first_weights`."""
    found, sums = [], []
    for ids, labels, row_weights in batches().as_numpy_iterator():
        loss, accuracy, _ = _numpy_loss(first_weights(), ids, labels, row_weights)
        found.append((loss, accuracy))
        sums.append((len(ids), row_weights.sum()))
    (losses, accuracies), (rows, weights) = np.transpose(found), np.transpose(sums)
    return {
        "loss": np.average(losses, weights=rows),
        "accuracy": np.average(accuracies, weights=weights),
    }


def assert_near(received, expected, tolerance: float = 1e-5) -> None:
    """Two dictionaries hold the same numbers."""
    assert received.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(
            received[name], value, rtol=tolerance, atol=tolerance, err_msg=name
        )


def rows_of_numbers(weighted: bool):
    """x `[7, 3]`, y `[7, 1]` and sample weights `[7]` or None."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(7, 3)).astype(np.float32), rng.normal(size=(7, 1)).astype(np.float32)
    return x, y, rng.uniform(size=7).astype(np.float32) if weighted else None


def linear_model(base, names=None, regularizer=None):
    """A linear map of x `[B, 3]`, as a subclass of `base`; with names one for each output."""
    layers = {
        name: keras.layers.Dense(1, kernel_initializer="ones", kernel_regularizer=regularizer)
        for name in names or (None,)
    }

    class Linear(base):
        def __init__(self):
            super().__init__()
            self.maps = list(layers.values())

        def call(self, x):
            outputs = [layer(x) for layer in self.maps]
            if names is None:
                return outputs[0]
            return dict(zip(names, outputs)) if isinstance(names[0], str) else outputs

    model = Linear()
    model(tf.zeros([1, 3]))
    return model


def assert_step_is_kerass(loss, data, names=None, regularizer=None, strategy=None, **options):
    """In three parts, or over replicas, a step and its loss are those of plain Keras in one."""
    plain = linear_model(keras.Model, names, regularizer)
    plain.compile(keras.optimizers.SGD(0.1), loss, run_eagerly=True, **options)
    expected = plain.train_on_batch(*data)
    if strategy is None:
        model = linear_model(TrainingModel, names, regularizer)
        model.compile(
            keras.optimizers.SGD(0.1),
            loss,
            run_eagerly=True,
            gradient_accumulation_steps=3,
            **options,
        )
        received = model.train_on_batch(*data)
    else:
        with strategy.scope():
            model = linear_model(TrainingModel, names, regularizer)
            model.compile(keras.optimizers.SGD(0.1), loss, **options)
        dataset = tf.data.Dataset.from_tensors(tuple(part for part in data if part is not None))
        received = model.fit(dataset, verbose=0).history["loss"][0]
    np.testing.assert_allclose(np.ravel(received)[0], np.ravel(expected)[0], rtol=1e-5)
    for mine, keras_own in zip(model.trainable_variables, plain.trainable_variables):
        np.testing.assert_allclose(mine.numpy(), keras_own.numpy(), rtol=1e-5, atol=1e-6)
