"""The words before and after each token of a row, the labels of language models.

Glossary: `B` rows, `T` tokens of a row.
"""

import tensorflow as tf

from bert_tf.models.text_batches import IGNORED


def next_words(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the word after each token, -100 where there is none.

    Args:
        token_ids: int32 `[B, T]`, with padding on the right.
        padding_mask: bool `[B, T]`, True for real tokens.

    Returns:
        int32 `[B, T]`.
    """
    followed = padding_mask[:, :-1] & padding_mask[:, 1:]
    ids = tf.where(followed, tf.cast(token_ids[:, 1:], tf.int32), IGNORED)
    return tf.pad(ids, [[0, 0], [0, 1]], constant_values=IGNORED)


def previous_words(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the word before each token, -100 where there is none; see `next_words`."""
    follows = padding_mask[:, :-1] & padding_mask[:, 1:]
    ids = tf.where(follows, tf.cast(token_ids[:, :-1], tf.int32), IGNORED)
    return tf.pad(ids, [[0, 0], [1, 0]], constant_values=IGNORED)
