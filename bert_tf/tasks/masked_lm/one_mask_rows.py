"""Sentences with one token masked at a time: the inputs of a pseudo-log-likelihood.

Glossary: `n` sentences, `R` tokens of all of them, `B` rows of a batch, `T` its length.
"""

import numpy as np

from bert_tf.inputs.token_rows import TokenRows
from bert_tf.text.tokenizer import BertTokenizer

# The feature that carries the token that the mask hides.
TARGET_IDS = "target_ids"


class OneMaskRows(TokenRows):
    """Every sentence with each of its tokens hidden once: R rows.

    Args:
        ids, lengths: The tokens of the sentences end to end, without special ones, int `[R]`, and
            how many each sentence has, int `[n]`.
        tokenizer: Gives the special tokens.
    """

    def __init__(self, ids: np.ndarray, lengths: np.ndarray, tokenizer: BertTokenizer):
        self._ids, self._tokenizer = ids, tokenizer
        self._lengths = np.repeat(lengths, lengths)  # [R], of the sentence of a token
        self._starts = np.repeat(np.cumsum(lengths) - lengths, lengths)

    def lengths(self):
        return self._lengths + 2

    def batch(self, rows, length=None):
        """Returns tokens `[B, T]`, `masked_positions` and `target_ids` `[B, 1]`."""
        ids, tokenizer, hidden = self._ids, self._tokenizer, rows[:, np.newaxis]
        lengths, starts = self._lengths[hidden], self._starts[hidden]  # [B, 1]
        columns = np.arange(length or lengths.max(initial=0) + 2)[np.newaxis]  # [1, T]
        inside = (columns >= 1) & (columns <= lengths)  # [B, T]
        token_ids = np.full(inside.shape, tokenizer.pad_token_id, np.int32)
        token_ids[inside] = ids[(starts + columns - 1)[inside]]
        token_ids[:, 0] = tokenizer.cls_token_id
        token_ids[columns == lengths + 1] = tokenizer.sep_token_id
        positions = (hidden - starts + 1).astype(np.int32)
        np.put_along_axis(token_ids, positions, tokenizer.mask_token_id, axis=1)
        return {
            "token_ids": token_ids,
            "padding_mask": columns < lengths + 2,
            "masked_positions": positions,
            TARGET_IDS: ids[hidden].astype(np.int32),
        }
