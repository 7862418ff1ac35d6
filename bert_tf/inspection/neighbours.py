"""The nearest neighbours of a token's vector after each layer, by cosine.

Neighbours are the other tokens of the text after the same layer, and the pieces of the vocabulary
by their input embeddings.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.inspection.candidates import LOGITS_AT_ONCE


class Neighbours(NamedTuple):
    """The k nearest of every token's vector.

    Attributes:
        numbers: int32 `[L + 1, T, k]`: places in the row, or ids of pieces; the nearest first.
        cosines: float32 of the same shape.
    """

    numbers: np.ndarray
    cosines: np.ndarray


def nearest_tokens(hidden_states: np.ndarray, top_k: int = 5) -> Neighbours:
    """Returns the nearest other tokens of the text.

    Args:
        hidden_states: float32 `[L + 1, T, H]`.
        top_k: How many; at most T - 1.
    """
    vectors = tf.math.l2_normalize(hidden_states, axis=-1)
    cosines = tf.matmul(vectors, vectors, transpose_b=True)  # [L + 1, T, T]
    length = hidden_states.shape[1]
    cosines = tf.linalg.set_diag(cosines, tf.fill(cosines.shape[:2], -2.0))  # not itself
    best, numbers = tf.math.top_k(cosines, min(top_k, length - 1))
    return Neighbours(numbers.numpy(), best.numpy())


def nearest_pieces(
    model: Any, hidden_states: np.ndarray, num_pieces: int, top_k: int = 5
) -> Neighbours | None:
    """Returns the nearest pieces of the vocabulary; None if their vectors have another size.

    Args:
        model: The model.
        hidden_states: float32 `[L + 1, T, H]`.
        num_pieces: The pieces of the vocabulary; later rows of the embeddings have none.
        top_k: How many.
    """
    table = tf.cast(model.backbone.embeddings.word_table()[:num_pieces], tf.float32)
    if table.shape[-1] != hidden_states.shape[-1]:
        return None
    table = tf.math.l2_normalize(table, axis=-1)
    layers, length, width = hidden_states.shape
    rows = tf.math.l2_normalize(hidden_states.reshape(-1, width), axis=-1)  # [(L + 1) T, H]
    found = [
        tf.math.top_k(tf.matmul(rows[start : start + LOGITS_AT_ONCE], table, False, True), top_k)
        for start in range(0, layers * length, LOGITS_AT_ONCE)
    ]
    cosines, numbers = (np.concatenate(part).reshape(layers, length, -1) for part in zip(*found))
    return Neighbours(numbers, cosines)
