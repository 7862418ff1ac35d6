"""The most probable pieces at places of a text, as ids and probabilities."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

LOGITS_AT_ONCE = 128  # of logits over the vocabulary


class PieceCandidates(NamedTuple):
    """The k most probable pieces at every place.

    Attributes:
        ids: int32 `[..., k]`, the most probable first.
        probabilities: float32 of the same shape.
        own: float32 `[...]`, the probability of the piece that is there.
    """

    ids: np.ndarray
    probabilities: np.ndarray
    own: np.ndarray


def best_candidates(
    logits: tf.Tensor, own_ids: np.ndarray, top_k: int, num_pieces: int
) -> PieceCandidates:
    """Returns the most probable pieces.

    Args:
        logits: `[R, V]`.
        own_ids: `[R]`, the pieces that are there.
        top_k: How many pieces.
        num_pieces: The pieces of the vocabulary; the V - num_pieces last rows have none.
    """
    probabilities = tf.nn.softmax(tf.cast(logits[:, :num_pieces], tf.float32))
    best, ids = tf.math.top_k(probabilities, min(top_k, num_pieces))
    own = tf.gather(probabilities, own_ids, batch_dims=1)
    return PieceCandidates(ids.numpy(), best.numpy(), own.numpy())


def join_candidates(found: list[PieceCandidates]) -> PieceCandidates:
    """Returns the candidates of several groups of places as one."""
    return PieceCandidates(*(np.concatenate(part) for part in zip(*found)))


def has_word_head(model) -> bool:
    """Returns whether the model predicts masked words, and not the next word."""
    return hasattr(model, "word_logits") and getattr(model, "objective", None) != "ltr"
