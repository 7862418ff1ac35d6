"""Rows of tokens in which some tokens have labels: first pieces of words, `[CLS]` of sentences.

Glossary: `n` rows, `M` marked tokens of all rows, `T` tokens of a row.
"""

import numpy as np
import tensorflow as tf

from bert_tf.inputs.batches import IGNORED
from bert_tf.inputs.tokenized_texts import RaggedRows


class MarkedRows(RaggedRows):
    """Rows of token ids with one label or output for each marked token.

    Args:
        token_ids, segment_ids, pad_token_id: See `RaggedRows`.
        marks: Which tokens are marked, ragged bool `[n, (T)]`.
        examples: The example of each row, int64 `[n]`.
        item_splits: The marks of each example, int64 `[examples + 1]`.
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
        self.marks = marks
        self.examples = examples
        self.item_splits = item_splits

    def labels(self, values: np.ndarray) -> tf.RaggedTensor:
        """Returns one label per token, ragged `[n, (T)]`, from one per mark, int32 `[M]`."""
        labels = np.full(self.token_ids.values.shape[0], IGNORED, np.int32)
        labels[self.marks.values.numpy()] = values
        return self.token_ids.with_values(tf.constant(labels))

    def marked_values(self, token_values: np.ndarray) -> np.ndarray:
        """Returns one value per mark, `[M, ...]`, from one per token, `[n, T, ...]`."""
        marked = self.marks.to_tensor(False).numpy()  # [n, T], T of the longest row
        return token_values[:, : marked.shape[1]][marked]
