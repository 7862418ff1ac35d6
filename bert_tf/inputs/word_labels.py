"""The word after each token of a row, the label of language models.

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
    order = real_tokens_first(padding_mask)  # [B, T]
    ids = tf.where(padding_mask, tf.cast(token_ids, tf.int32), IGNORED)
    ids = tf.gather(ids, order, batch_dims=1)
    ids = tf.pad(ids, [[0, 0], [0, 1]], constant_values=IGNORED)[:, 1:]  # [B, T]
    words = tf.gather(ids, tf.argsort(order, axis=1), batch_dims=1)
    return tf.where(padding_mask, words, IGNORED)
