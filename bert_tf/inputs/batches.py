"""Batches of `B` of `n` rows, `T` tokens long: in any order for training, sorted for prediction."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from bert_tf.inputs.token_budget import token_batches

# Tokens of a batch, padding counted: enough for fast matmuls, with less than 200 MB of activations.
TOKEN_BUDGET = 4096
# Rows that are sorted together, so that results do not wait for the longest text of all.
CHUNK_OF_ROWS = 8192
ROW_NUMBER = "row_number"  # the feature that contains each row's number
IGNORED = -100  # the label of padding and of tokens without one; PyTorch's `ignore_index`


class TokenRows(Protocol):
    """Tokenized rows in memory.

    Attributes:
        examples: int64 `[n]`, the example of each row, ascending; None if every row is one.
    """

    examples: np.ndarray | None

    def __len__(self) -> int:
        """Returns the number of rows that `batch` takes."""

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every row, int64 `[n]`."""

    def batch(self, rows: tf.Tensor, length: int | None = None) -> dict[str, tf.Tensor]:
        """Returns the features of the rows int64 `[B]`, padded to `length` or to the longest."""


class TrainingRows(TokenRows, Protocol):
    """Tokenized rows to train on, of which a batch may have a limited number of tokens."""

    def sizes(self, padded: bool) -> np.ndarray:
        """Returns what rows count in a token budget, int64 `[n]`; `[n, K]` for K padded parts.

        With `padded`, padding within a row (between its sequences) is counted.
        """


class RowsWithInputs:
    """Tokenized rows with what the user passed after the texts. `TrainingRows`, if `rows` are.

    Args:
        rows: The rows of tokens.
        inputs: Arrays by name, with a row for each example.
    """

    def __init__(self, rows: TokenRows, inputs: Mapping[str, np.ndarray]):
        self._rows = rows
        with tf.device("CPU:0"):
            self._inputs = {name: tf.constant(values) for name, values in inputs.items()}

    def __len__(self):
        return len(self._rows)

    def __getattr__(self, name):
        return getattr(self._rows, name)

    def batch(self, rows, length=None):
        examples = rows if self.examples is None else tf.gather(self.examples, rows)
        inputs = {name: tf.gather(values, examples) for name, values in self._inputs.items()}
        return {**self._rows.batch(rows, length), **inputs}


def training_batches(
    rows: TokenRows, labels: tuple, batch_size: int, shuffle: bool, length: int | None = None
) -> tf.data.Dataset:
    """Returns batches of `(features, *labels)`, padded to `length` or to the longest of the batch.

    `labels` are labels and weights of the rows: arrays `[n, ...]`, or ragged tensors `[n, (T)]`,
    which are padded with `IGNORED`. With `shuffle` each epoch has another order.
    """
    numbers = tf.data.Dataset.range(len(rows))
    if shuffle:
        numbers = numbers.shuffle(len(rows), reshuffle_each_iteration=True)
    return batches_of_numbers(rows, labels, numbers.batch(batch_size), length)


def batches_of_numbers(
    rows: TokenRows, labels: tuple, numbers: tf.data.Dataset, length: int | None = None
) -> tf.data.Dataset:
    """Returns what `training_batches` does, for a dataset of row numbers int64 `[B]`."""
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        labels = [v if isinstance(v, tf.RaggedTensor) else tf.constant(v) for v in labels]

    def of_rows(values, numbers):
        values = tf.gather(values, numbers)
        if isinstance(values, tf.RaggedTensor):
            return values.to_tensor(IGNORED, shape=[None, length])
        return values

    def batch(numbers):
        features = rows.batch(numbers, length)
        return (features, *(of_rows(values, numbers) for values in labels))

    batches = parallel_map(numbers, also_for_no_rows(batch, numbers.element_spec))
    return batches.prefetch(tf.data.AUTOTUNE)


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
) -> tf.data.Dataset:
    """Returns batches of all rows, the longest first in every chunk, with their numbers.

    Args:
        rows: The rows.
        token_budget: The maximum of `B * T`, padding counted; a longer row is a batch of its own.
            None for `TOKEN_BUDGET`, or for no maximum where there is a `batch_size`.
        batch_size: The maximum number of rows of a batch.
        length: T, for XLA: then all batches but the last have the same number of rows. None for the
            longest row of the batch.

    Returns:
        A dataset of the features of `rows`, and `row_number` int64 `[B]`.

    Example:
        >>> preprocessor = bert_tf.BertTextClassifier.from_pretrained("reviews/").preprocessor
        >>> rows = preprocessor.rows(preprocessor.read(["no", "a good film"]))
        >>> [batch["row_number"].numpy().tolist() for batch in sorted_batches(rows)]
        [[1, 0]]
    """
    lengths = rows.lengths()
    if length is not None:
        lengths = np.full(len(lengths), length)
    if token_budget is None:
        token_budget = TOKEN_BUDGET if batch_size is None else batch_size * max(1, lengths.max())
    order, splits = [np.zeros([0], np.int64)], [np.zeros([1], np.int64)]
    for start in range(0, len(lengths), CHUNK_OF_ROWS):
        chunk = lengths[start : start + CHUNK_OF_ROWS]
        batches = token_batches(chunk, token_budget, batch_size, padded=True)
        order.append(start + batches.order)
        splits.append(start + batches.splits[1:])
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        order, splits = (tf.constant(np.concatenate(parts)) for parts in (order, splits))

    def batch(number):
        numbers = order[splits[number] : splits[number + 1]]
        return {**rows.batch(numbers, length), ROW_NUMBER: numbers}

    batches = tf.data.Dataset.range(tf.size(splits, tf.int64) - 1)
    return parallel_map(batches, batch).prefetch(tf.data.AUTOTUNE)


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
