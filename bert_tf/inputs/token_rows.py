"""Rows of tokens in memory: texts, tokenized once, and the batches that are cut from them.

Rows are NumPy arrays. Inside a `tf.data` pipeline, the tokenizer's graph would be optimized for
every pass: a second each.

Glossary: `n` rows, `K` sequences of a row or example, `B` rows of a batch, `T` tokens, `M`
marked tokens of all rows.
"""

import functools
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_slices
from bert_tf.base.python_functions import numpy_function
from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.long_texts import token_windows
from bert_tf.text import packing

# Texts: enough for the tokenizer's speed, few enough for little memory.
TOKENIZED_TOGETHER = 8192
SPECIAL_TOKENS = 2  # of a text: [CLS] and [SEP]


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


class RaggedRows(TokenRows):
    """Rows of token ids in memory, from which batches are cut.

    Args:
        token_ids: int32 ragged `[n, (T)]`.
        segment_ids: The same, 0 and 1.
        pad_token_id: What rows are padded with.
        rows_per_example: K; None for examples of one row, without an axis for it.

    Attributes:
        token_ids: The ids of all R tokens, int32 `[R]`.
        row_splits: Where rows begin and end in them, int64 `[n + 1]`.
        features: Values of all tokens `[R]` and their padding, by name.
    """

    def __init__(
        self,
        token_ids: tf.RaggedTensor,
        segment_ids: tf.RaggedTensor,
        pad_token_id: int,
        rows_per_example: int | None = None,
    ):
        self.token_ids, self.row_splits = token_ids.values.numpy(), token_ids.row_splits.numpy()
        segment_ids = segment_ids.values.numpy().astype(np.int8)  # a quarter of the memory
        self.features = {
            "token_ids": (self.token_ids, np.int32(pad_token_id)),
            "segment_ids": (segment_ids, np.int32(0)),
        }
        self._rows_per_example = rows_per_example

    def __len__(self) -> int:
        return (len(self.row_splits) - 1) // (self._rows_per_example or 1)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every example, or of its longest row, int64 `[n]`."""
        lengths, count = np.diff(self.row_splits), self._rows_per_example
        return lengths if count is None else lengths.reshape(-1, count).max(axis=1)  # [n K] -> [n]

    def sizes(self, padded):
        if self._rows_per_example is None:
            return self.lengths()
        if padded:
            return self.lengths() * self._rows_per_example
        return np.diff(self.row_splits).reshape(-1, self._rows_per_example).sum(1)  # [n K] -> [n]

    def batch(self, examples: np.ndarray, length: int | None = None) -> dict[str, np.ndarray]:
        """Returns the examples `[B]`, by number, padded to `length` or to the longest.

        Returns:
            `token_ids` and `segment_ids` int32, `padding_mask` bool, each `[B, T]`, with
            `rows_per_example` `[B, K, T]`; and `inputs`, if there are any.
        """
        rows, count = np.asarray(examples), self._rows_per_example
        if count is not None:  # [B] -> [B * K]
            rows = (rows[:, np.newaxis] * count + np.arange(count)).reshape(-1)
        starts = self.row_splits[rows]
        sizes = self.row_splits[rows + 1] - starts
        columns = np.arange(length or (sizes.max() if len(sizes) else SPECIAL_TOKENS))
        mask = columns < sizes[:, np.newaxis]  # [B, T]
        places = (starts[:, np.newaxis] + columns)[mask]
        features = {"padding_mask": mask}
        for name, (values, padding) in self.features.items():
            features[name] = np.full(mask.shape, padding)
            features[name][mask] = values[places]
        if count is not None:  # [B * K, T] -> [B, K, T]
            shape = (-1, count, mask.shape[1])
            features = {name: values.reshape(shape) for name, values in features.items()}
        if self.inputs:
            examples = examples if self.examples is None else self.examples[examples]
            features |= {name: values[examples] for name, values in self.inputs.items()}
        return features

    def ragged(self, values: np.ndarray) -> tf.RaggedTensor:
        """Returns values of all tokens, `[R]`, as ragged rows `[n, (T)]`."""
        return tf.RaggedTensor.from_row_splits(values, self.row_splits, validate=False)


class TokenizedTexts(RaggedRows):
    """Token ids of texts or pairs, or of windows of texts."""

    @classmethod
    def of(
        cls,
        tokenizer,
        columns: tuple[np.ndarray, ...],
        max_length: int,
        rows_per_example: int | None = None,
    ) -> "TokenizedTexts":
        """Tokenizes texts, one array of strings `[n]`, or pairs, two; longer rows are cut."""
        tokenize = functools.partial(tokenizer, max_length=max_length, ragged=True)
        rows = tokenize_in_parts(tokenize, columns)
        ids = rows["token_ids"], rows["segment_ids"]
        return cls(*ids, tokenizer.pad_token_id, rows_per_example)

    @classmethod
    def of_windows(
        cls, tokenizer, texts: np.ndarray, max_length: int, stride: int
    ) -> "TokenizedTexts":
        """Tokenizes strings `[n]` and cuts each into windows; `examples` is the text of each.

        A window of `max_length` tokens, `[CLS]` and `[SEP]` counted, begins every `stride` tokens.
        """
        with tf.device("CPU:0"):
            ids = tokenize_in_parts(tokenizer.tokenize, [texts])
            windows, text_of_window = token_windows(ids, max_length - 2, stride)
            ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
            rows = packing.pack(windows, None, *ends, None, "longest_first")
        windows = cls(*rows, tokenizer.pad_token_id)
        windows.examples = text_of_window.numpy()
        return windows

    def places_of(self, token_id: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the columns where a token is, row after row, and how many each row has, `[n]`."""
        found = np.flatnonzero(self.token_ids == token_id)
        rows = np.searchsorted(self.row_splits, found, side="right") - 1
        return found - self.row_splits[rows], np.bincount(rows, minlength=len(self))


class FewTexts(TokenizedTexts):
    """Texts or pairs whose tokens are computed when they are asked for.

    If they are one batch, a `Predictor` computes its outputs from the strings, in one graph with
    the network.

    Args:
        tokenizer, texts, max_length: See `TokenizedTexts.of`; the texts are its columns.

    Attributes:
        most_tokens: The most tokens that the rows may have together, padding counted.
    """

    def __init__(self, tokenizer, texts: tuple[np.ndarray, ...], max_length: int):
        self.tokenizer, self.texts, self.max_length = tokenizer, texts, max_length
        self.most_tokens = len(texts[0]) * max_length

    def __len__(self) -> int:
        return len(self.texts[0])

    def __getattr__(self, name):
        if name not in ("token_ids", "row_splits", "features", "_rows_per_example"):
            raise AttributeError(name)
        vars(self).update(vars(TokenizedTexts.of(self.tokenizer, self.texts, self.max_length)))
        return vars(self)[name]

    def in_order(self, columns: list[tf.Tensor]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns the features of texts in the order of batches, and this order, int32 `[n]`."""
        with tf.device("CPU:0"):
            features = self.tokenizer(*columns, max_length=self.max_length)
            lengths = tf.math.count_nonzero(features["padding_mask"], axis=1)
            order = tf.argsort(lengths, direction="DESCENDING", stable=True)
            return {name: tf.gather(rows, order) for name, rows in features.items()}, order


class MarkedRows(RaggedRows):
    """Rows of tokens with one label or output for each marked token.

    That is the first piece of each word, or the `[CLS]` of each sentence.

    Args:
        token_ids, segment_ids, pad_token_id: See `RaggedRows`.
        marks: Which tokens are marked, ragged bool `[n, (T)]`.
        examples: The example of each row, int64 `[n]`.
        item_splits: The marks of each example, int64 `[examples + 1]`.

    Attributes:
        marks: Whether each token of all rows is marked, bool `[R]`.
    """

    def __init__(
        self,
        token_ids: tf.RaggedTensor,
        segment_ids: tf.RaggedTensor,
        pad_token_id: int,
        marks: tf.RaggedTensor,
        examples: np.ndarray,
        item_splits: np.ndarray,
    ):
        super().__init__(token_ids, segment_ids, pad_token_id)
        self.marks = marks.values.numpy()
        self.examples = examples
        self.item_splits = item_splits

    def labels(self, values: np.ndarray) -> tf.RaggedTensor:
        """Returns one label per token, ragged `[n, (T)]`, from one per mark, int32 `[M]`."""
        labels = np.full(len(self.token_ids), IGNORED, np.int32)
        labels[self.marks] = values
        return self.ragged(labels)

    def marked_values(self, token_values: np.ndarray) -> np.ndarray:
        """Returns one value per mark, `[M, ...]`, from one per token, `[n, T, ...]`."""
        starts, lengths = self.row_splits[:-1], self.lengths()
        columns = np.arange(len(self.marks)) - np.repeat(starts, lengths)
        rows = np.repeat(np.arange(len(self)), lengths)
        return token_values[rows[self.marks], columns[self.marks]]


def tokenize_in_parts(
    function: Callable, columns: Sequence[Sequence[Any]], size: int = TOKENIZED_TOGETHER
) -> Any:
    """Returns what `function(*columns)` makes of columns of texts, `size` rows at a time.

    The results are tensors with a row for each text, in any nest. Many texts show a progress bar.
    """
    count = len(columns[0])
    if count <= size:
        return function(*columns)
    shown = {"desc": "Tokenizing", "unit": " texts", "delay": 3, "leave": False}
    parts = progress_slices(count, size, **shown)
    return joined([function(*(column[part] for column in columns)) for part in parts])


def joined(parts: list) -> Any:
    """Returns nests of tensors, each of other rows, as one nest with all rows."""
    if len(parts) == 1:  # `tf.concat` of one ragged tensor takes as long as a short text
        return parts[0]
    with tf.device("CPU:0"):
        return tf.nest.map_structure(lambda *values: tf.concat(values, axis=0), *parts)


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

    `labels` are labels and weights of the rows: arrays `[n, ...]`, or ragged labels of all tokens
    `[n, (T)]`, which are padded with `IGNORED`; `length` is that of `TokenRows.batch`. Each element
    of `numbers` may come with its epoch, on which these batches do not depend.
    """
    specs = feature_specs(rows.batch(np.zeros([0], np.int64), length), rows.inputs, bool(length))
    dtypes = [spec.dtype for spec in specs.values()]
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        labels = [v if isinstance(v, tf.RaggedTensor) else tf.constant(v) for v in labels]

    def arrays(numbers):
        features = rows.batch(numbers, length)
        return list(map(features.get, specs))

    def batch(numbers, *epoch):
        values = numpy_function(arrays, [numbers], dtypes, stateful=False)
        features, targets = {}, []
        for (name, spec), value in zip(specs.items(), values, strict=True):
            features[name] = tf.ensure_shape(value, [*numbers.shape, *spec.shape[1:]])
        for value in labels:
            value = tf.gather(value, numbers)
            if isinstance(value, tf.RaggedTensor):  # padded as the tokens are, also without rows
                shape = tf.stack([-1, tf.shape(features["token_ids"])[-1]])
                value = value.to_tensor(IGNORED, shape=shape)
                value = tf.ensure_shape(value, [*numbers.shape, length])
            targets.append(value)
        return (features, *targets)

    return parallel_map(numbers, batch).prefetch(tf.data.AUTOTUNE)


def parallel_map(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, in order, in parallel. It may not branch on tensors."""
    # AutoGraph takes seconds to convert a tokenizer.
    function = tf.autograph.experimental.do_not_convert(function)
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
