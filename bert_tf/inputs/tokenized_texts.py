"""Texts in memory, tokenized once: batches of them are cut from ragged arrays.

Inside a `tf.data` pipeline, the tokenizer's graph would be optimized for every pass: a second each.

Glossary: `n` rows of text, `K` rows of an example, `B` examples of a batch, `T` tokens.
"""

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_slices
from bert_tf.inputs.long_texts import token_windows
from bert_tf.text import packing

# Texts: enough for the tokenizer's speed, few enough for little memory.
TOKENIZED_TOGETHER = 8192


class RaggedRows:
    """Rows of token ids in memory, from which batches are cut.

    Args:
        token_ids: int32 ragged `[n, (T)]`.
        segment_ids: The same, 0 and 1.
        pad_token_id: What rows are padded with.
        rows_per_example: K; None for examples of one row, without an axis for it.

    Attributes:
        token_ids: The argument.
    """

    examples = None  # see `TokenRows`

    def __init__(
        self,
        token_ids: tf.RaggedTensor,
        segment_ids: tf.RaggedTensor,
        pad_token_id: int,
        rows_per_example: int | None = None,
    ):
        with tf.device("CPU:0"):
            self.token_ids = token_ids
            self._segment_ids = tf.cast(segment_ids, tf.int8)  # a quarter of the memory
        self._pad_token_id = pad_token_id
        self._rows_per_example = rows_per_example

    def __len__(self) -> int:
        return int(self.token_ids.nrows()) // (self._rows_per_example or 1)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every example, or of its longest row, int64 `[n]`."""
        lengths, count = self.token_ids.row_lengths().numpy(), self._rows_per_example
        return lengths if count is None else lengths.reshape(-1, count).max(axis=1)  # [n K] -> [n]

    def sizes(self, padded: bool) -> np.ndarray:
        """Returns the number of tokens of every example, in all its rows; see `TrainingRows`."""
        if self._rows_per_example is None:
            return self.lengths()
        if padded:
            return self.lengths() * self._rows_per_example
        lengths = self.token_ids.row_lengths().numpy()
        return lengths.reshape(-1, self._rows_per_example).sum(axis=1)  # [n K] -> [n]

    def batch(self, examples: tf.Tensor, length: int | None = None) -> dict[str, tf.Tensor]:
        """Returns the examples `[B]`, by number, padded to `length` or to the longest.

        Returns:
            `token_ids` and `segment_ids` int32, `padding_mask` bool, each `[B, T]`, with
            `rows_per_example` `[B, K, T]`.
        """
        rows, count = examples, self._rows_per_example
        if count is not None:  # [B] -> [B * K]
            rows = tf.reshape(rows[:, tf.newaxis] * count + tf.range(count, dtype=rows.dtype), [-1])
        token_ids = tf.gather(self.token_ids, rows)
        segment_ids = tf.gather(self._segment_ids, rows)
        tokens = {  # [B * K, (T)] -> [B * K, T]
            "token_ids": token_ids.to_tensor(self._pad_token_id, shape=[None, length]),
            "segment_ids": tf.cast(segment_ids.to_tensor(shape=[None, length]), tf.int32),
            "padding_mask": tf.sequence_mask(token_ids.row_lengths(), length),
        }
        if count is None:
            return tokens
        shape = [tf.size(examples), count, tf.shape(tokens["token_ids"])[1]]
        tokens = {name: tf.reshape(tokens[name], shape) for name in tokens}  # -> [B, K, T]
        return {name: tf.ensure_shape(tokens[name], [None, count, length]) for name in tokens}


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
        parts = [tokenizer(*part, max_length=max_length, ragged=True) for part in _chunks(columns)]
        names = ("token_ids", "segment_ids")
        with tf.device("CPU:0"):
            rows = [tf.concat([part[name] for part in parts], axis=0) for name in names]
        return cls(*rows, tokenizer.pad_token_id, rows_per_example)

    @classmethod
    def of_windows(
        cls, tokenizer, texts: np.ndarray, max_length: int, stride: int
    ) -> "TokenizedTexts":
        """Tokenizes strings `[n]` and cuts each into windows; `examples` is the text of each.

        A window of `max_length` tokens, `[CLS]` and `[SEP]` counted, begins every `stride` tokens.
        """
        with tf.device("CPU:0"):
            ids = tf.concat([tokenizer.tokenize(chunk) for (chunk,) in _chunks((texts,))], axis=0)
            windows, text_of_window = token_windows(ids, max_length - 2, stride)
            ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
            rows = packing.pack(windows, None, *ends, None, "longest_first")
        windows = cls(*rows, tokenizer.pad_token_id)
        windows.examples = text_of_window.numpy()
        return windows

    def places_of(self, token_id: int) -> tf.RaggedTensor:
        """Returns the columns of every row where a token is, ragged int64 `[n, (places)]`."""
        ids = self.token_ids
        found = tf.where(ids.values == token_id)[:, 0]
        rows = tf.gather(ids.value_rowids(), found)
        columns = found - tf.gather(ids.row_starts(), rows)
        return tf.RaggedTensor.from_value_rowids(columns, rows, ids.nrows())


def _chunks(columns):
    """Yields the columns in parts, as tensors; of no rows one part without rows."""
    count, slices = len(columns[0]), [slice(None)]
    if count > TOKENIZED_TOGETHER:
        shown = {"desc": "Tokenizing", "unit": " texts", "delay": 3, "leave": False}
        slices = progress_slices(count, TOKENIZED_TOGETHER, **shown)
    for rows in slices:
        yield [tf.constant(column[rows], tf.string) for column in columns]
