"""What could be at the places of a text: the pieces that a masked-LM head predicts, and neighbours.

The neighbours of a token's vector after each layer, by cosine, are the other tokens of the text
after the same layer, and the pieces of the vocabulary by their input embeddings.

References: Salazar et al. 2020 (arXiv 1910.14659), section 2, hides one piece at a time;
nostalgebraist 2020, "interpreting GPT: the logit lens", reads each layer.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.inspection.targets import InspectedRow, parts

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
    """Returns the most probable pieces, for logits `[R, V]` and the pieces that are there, `[R]`.

    The vocabulary has `num_pieces`; the V - num_pieces last rows have none.
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


def masked_words(
    model: Any, row: InspectedRow, places: np.ndarray | None = None, top_k: int = 5
) -> PieceCandidates:
    """Returns the most probable pieces at each place while only it is hidden by `[MASK]`.

    The model has a masked-LM head, and the tokenizer of the row a mask token. `places` are the
    tokens to hide, int `[P]`; None for all T.
    """
    places = np.arange(len(row)) if places is None else np.asarray(places)
    found = []
    for part in parts(len(places), len(row)):
        hidden = places[part]  # [B]
        token_ids = np.repeat(row.ids[np.newaxis], len(hidden), axis=0)  # [B, T]
        token_ids[np.arange(len(hidden)), hidden] = row.tokenizer.mask_token_id
        tokens = row.copies(len(hidden), token_ids=tf.constant(token_ids))
        outputs = model.backbone(tokens, output_word_embeddings=True)
        positions = tf.constant(hidden[:, np.newaxis], tf.int32)  # [B, 1]
        logits = tf.squeeze(model.word_logits(outputs, positions), 1)  # [B, 1, V] -> [B, V]
        found.append(best_candidates(logits, row.ids[hidden], top_k, len(row.readable)))
    return join_candidates(found)


def layer_lens(
    model: Any, row: InspectedRow, hidden_states: np.ndarray, top_k: int = 5
) -> PieceCandidates:
    """Returns the most probable pieces for every token after every layer, places `[L + 1, T]`.

    The head was trained on the last layer only, so what it says about early layers is a rough
    guide. `hidden_states` are float32 `[L + 1, T, H]`, of which the first are the embeddings.
    """
    table = tf.cast(model.backbone.embeddings.word_table(), model.compute_dtype)
    layers, length, _ = hidden_states.shape
    rows = hidden_states.reshape(layers * length, -1)  # [(L + 1) T, H]
    own = np.tile(row.ids, layers)
    found = []
    for start in range(0, len(rows), LOGITS_AT_ONCE):
        part = slice(start, start + LOGITS_AT_ONCE)
        states = tf.cast(tf.constant(rows[part]), model.compute_dtype)
        logits = model.masked_lm_head(states, word_embeddings=table)
        found.append(best_candidates(logits, own[part], top_k, len(row.readable)))
    shaped = (
        values.reshape(layers, length, *values.shape[1:]) for values in join_candidates(found)
    )
    return PieceCandidates(*shaped)


class Neighbours(NamedTuple):
    """The k nearest of every token's vector.

    Attributes:
        numbers: int32 `[L + 1, T, k]`: places in the row, or ids of pieces; the nearest first.
        cosines: float32 of the same shape.
    """

    numbers: np.ndarray
    cosines: np.ndarray


def nearest_tokens(hidden_states: np.ndarray, top_k: int = 5) -> Neighbours:
    """Returns the at most T - 1 nearest other tokens of the text, for states `[L + 1, T, H]`."""
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

    `hidden_states` are float32 `[L + 1, T, H]`. Rows of the embeddings after `num_pieces` have no
    pieces.
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
