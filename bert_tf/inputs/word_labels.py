"""The words before and after each token of a row, the labels of language models.

Glossary: `B` rows, `T` tokens of a row.
"""

import tensorflow as tf

from bert_tf.inputs.labels import IGNORED
from bert_tf.layers.attention.token_layout import real_tokens_first


def next_words(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the word after each token, -100 where there is none.

    Args:
        token_ids: int32 `[B, T]`.
        padding_mask: bool `[B, T]`, True for real tokens. Padding may be anywhere.

    Returns:
        int32 `[B, T]`.
    """
    return _neighbors(token_ids, padding_mask, [[0, 0], [0, 1]])


def previous_words(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the word before each token, -100 where there is none; see `next_words`."""
    return _neighbors(token_ids, padding_mask, [[0, 0], [1, 0]])


def _neighbors(token_ids, padding_mask, added):
    """Returns the words that are in the places of the tokens after columns are added."""
    order = real_tokens_first(padding_mask)  # [B, T]
    ids = tf.where(padding_mask, tf.cast(token_ids, tf.int32), IGNORED)
    ids = tf.pad(tf.gather(ids, order, batch_dims=1), added, constant_values=IGNORED)  # [B, T + 1]
    shifted = ids[:, 1:] if added[1][1] else ids[:, :-1]
    words = tf.gather(shifted, tf.argsort(order, axis=1), batch_dims=1)
    return tf.where(padding_mask, words, IGNORED)
