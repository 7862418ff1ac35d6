"""The two texts of a pair in the other order.

Glossary: `B` rows, `T` tokens of a row.
"""

import tensorflow as tf

from bert_tf.layers.pooling import first_columns


def swapped_pairs(tokens: dict[str, tf.Tensor], padding_mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns `[CLS] b [SEP] a [SEP]` for rows `[CLS] a [SEP] b [SEP]`.

    Args:
        tokens: `token_ids` and `segment_ids`, int32 `[B, T]`; rows without a second text stay.
            `word_vectors` `[B, T, E]` move with their tokens, and `head_mask` `[B, L, N]` is kept.
        padding_mask: bool `[B, T]`, True for real tokens.

    Returns:
        `token_ids`, `segment_ids` and `padding_mask`, with padding on the right, and the others.
    """
    segments = tf.cast(tokens["segment_ids"], tf.int32)
    columns = tf.range(tf.shape(segments)[1])
    is_first = columns == first_columns(padding_mask)[:, tf.newaxis]  # [B, T]
    # [CLS] is followed by the second text, the first and the padding, each in its order.
    place = tf.where(padding_mask, 2 - tf.minimum(segments, 1), 3)
    order = tf.argsort(tf.where(is_first, 0, place), axis=1, stable=True)  # [B, T]
    ids = tf.gather(tf.cast(tokens["token_ids"], tf.int32), order, batch_dims=1)
    mask = tf.gather(padding_mask, order, batch_dims=1)
    moved = tf.gather(segments, order, batch_dims=1)
    has_pair = tf.reduce_any((segments > 0) & padding_mask, axis=1, keepdims=True)
    other = tf.where(columns == 0, 0, 1 - tf.minimum(moved, 1))
    others = {}
    if tokens.get("word_vectors") is not None:
        others["word_vectors"] = tf.gather(tokens["word_vectors"], order, batch_dims=1)
    if tokens.get("head_mask") is not None:
        others["head_mask"] = tokens["head_mask"]
    return {
        **others,
        "token_ids": ids,
        "segment_ids": tf.where(has_pair & mask, other, 0),
        "padding_mask": mask,
    }
