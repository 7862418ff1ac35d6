"""Rows of tokens in which some tokens have labels: first pieces of words, `[CLS]` of sentences.

Glossary: `n` rows, `M` marked tokens of all rows, `T` tokens of a row.
"""

import numpy as np
import tensorflow as tf

from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_rows import RaggedRows


class MarkedRows(RaggedRows):
    """Rows of token ids with one label or output for each marked token.

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
