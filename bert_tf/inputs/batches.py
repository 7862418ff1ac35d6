"""Batches of `B` of `n` rows, `T` tokens long: in any order for training, sorted for prediction.

Rows are NumPy arrays. Glossary: `K` sequences of a row.
"""

import types
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.inputs.token_budget import token_batches

# Tokens of a batch, padding counted: enough for fast matmuls, with less than 200 MB of activations.
TOKEN_BUDGET = 4096
IGNORED = -100  # the label of padding and of tokens without one; PyTorch's `ignore_index`


class TokenRows:
    """Tokenized rows in memory.

    Attributes:
        examples: int64 `[n]`, the example of each row, ascending; None if every row is one.
        inputs: What the user passed after the texts: arrays by name, with a row for each example.
    """

    examples: np.ndarray | None = None
    inputs: Mapping[str, np.ndarray] = types.MappingProxyType({})

    def __len__(self) -> int:
        """Returns the number of rows that `batch` takes."""
        return len(self.lengths())

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every row, int64 `[n]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `lengths`.")

    def sizes(self, padded: bool) -> np.ndarray:
        """Returns what rows to train on count in a token budget, int64 `[n]`; `[n, K]` for K parts.

        With `padded`, padding within a row (between its sequences) is counted.
        """
        return self.lengths()

    def batch(self, rows: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
        """Returns the features of the rows int64 `[B]`, padded to `length` or to the longest."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `batch`.")


def feature_specs(
    features: Mapping[str, np.ndarray], inputs: Collection[str], is_static: bool = False
) -> dict[str, tf.TensorSpec]:
    """Returns the specifications of the features of all batches, by name.

    Args:
        features: The features of one batch: tokens `[B, T]` or `[B, K, T]`, or values `[B]`.
        inputs: The names of those of which only B changes.
        is_static: Whether all sizes are known, which XLA needs.
    """
    specs = {}
    for name in sorted(features):
        shape = list(features[name].shape)
        if shape and not is_static:
            shape[0] = None
            shape[-1] = shape[-1] if name in inputs else None
        specs[name] = tf.TensorSpec(shape, features[name].dtype)
    return specs


def batches_of_numbers(
    rows: TokenRows, labels: tuple, numbers: tf.data.Dataset, length: int | None = None
) -> tf.data.Dataset:
    """Returns batches of `(features, *labels)` for a dataset of row numbers int64 `[B]`.

    `labels` are labels and weights of the rows: arrays `[n, ...]`, or ragged tensors `[n, (T)]`,
    which are padded with `IGNORED`; `length` is that of `TokenRows.batch`. Each element of
    `numbers` may come with its epoch, on which these batches do not depend.
    """
    specs = feature_specs(rows.batch(np.zeros([0], np.int64), length), rows.inputs, bool(length))
    dtypes = [spec.dtype for spec in specs.values()]
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        labels = [v if isinstance(v, tf.RaggedTensor) else tf.constant(v) for v in labels]

    def of_rows(values, numbers):
        values = tf.gather(values, numbers)
        if isinstance(values, tf.RaggedTensor):
            return values.to_tensor(IGNORED, shape=[None, length])
        return values

    def arrays(numbers):
        features = rows.batch(numbers, length)
        return list(map(features.get, specs))

    def batch(numbers):
        values = tf.numpy_function(arrays, [numbers], dtypes, stateful=False)
        features = dict(zip(specs, values, strict=True))
        for name, spec in specs.items():
            features[name] = tf.ensure_shape(features[name], [*numbers.shape, *spec.shape[1:]])
        return (features, *(of_rows(values, numbers) for values in labels))

    batch_of_any = also_for_no_rows(batch, numbers.element_spec)

    @tf.autograph.experimental.do_not_convert
    def without_epoch(numbers, *epoch):
        return batch_of_any(numbers)

    return parallel_map(numbers, without_epoch).prefetch(tf.data.AUTOTUNE)


def also_for_no_rows(function: Callable, spec: Any) -> Callable:
    """Returns a function of tensors `[B]` that also takes B = 0, as a replica may have no rows.

    It lets `function` compute a row of zeros, without which there is no length to pad to.

    Args:
        function: A function of any nest of tensors `[B]`, which returns tensors `[B, ...]`.
        spec: The specification of its arguments; with a known B, the function is returned as it is.
    """
    if tf.nest.flatten(spec)[0].shape[0] is not None:
        return function

    @tf.autograph.experimental.do_not_convert
    def call(*tensors):
        count = tf.size(tf.nest.flatten(tensors)[0])
        paddings = [[0, tf.cast(count == 0, tf.int32)]]
        values = function(*tf.nest.map_structure(lambda v: tf.pad(v, paddings), tensors))
        return tf.nest.map_structure(lambda v: v[:count], values)

    return call


def sorted_batches(
    rows: TokenRows,
    token_budget: int | None = None,
    batch_size: int | None = None,
    length: int | None = None,
) -> list[np.ndarray]:
    """Returns the numbers of the rows of each batch, int64 `[B]`, the longest rows first.

    Args:
        rows: The rows.
        token_budget: The maximum of `B * T`, padding counted; a longer row is a batch of its own.
            None for `TOKEN_BUDGET`, or for no maximum where there is a `batch_size`.
        batch_size: The maximum number of rows of a batch.
        length: T, for XLA: then all batches but the last have the same number of rows. None for the
            longest row of the batch.

    Example:
        >>> preprocessor = bert_tf.BertTextClassifier.from_pretrained("reviews/").preprocessor
        >>> rows = preprocessor.encode(preprocessor.read(["no", "a good film"]))
        >>> sorted_batches(rows)
        [array([1, 0])]
    """
    lengths = rows.lengths()
    if length is not None:
        lengths = np.full(len(lengths), length)
    if token_budget is None:
        token_budget = TOKEN_BUDGET
        if batch_size is not None:
            token_budget = batch_size * max(1, lengths.max(initial=0))
    order, splits, _ = token_batches(lengths, token_budget, batch_size, padded=True)
    return np.split(order, splits[1:-1]) if len(order) else []


def parallel_map(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, in order, computed in parallel."""
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)


def pooled_windows(outputs, examples: np.ndarray, pooling: str):
    """Returns the "mean" or "max" over the windows of each text, of a nest of arrays `[n, ...]`.

    `examples` `[n]` is the text of each window, ascending; every text has a window.
    """
    starts = np.flatnonzero(np.diff(examples, prepend=-1))

    def pool(values):
        if pooling == "max":
            return np.maximum.reduceat(values, starts)
        counts = np.diff(np.append(starts, len(values)))
        sums = np.add.reduceat(values.astype(np.float64), starts)  # [texts, ...]
        return (sums.T / counts).T.astype(values.dtype)

    return tf.nest.map_structure(pool, outputs)
