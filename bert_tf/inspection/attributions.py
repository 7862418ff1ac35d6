"""How much each piece and each word of a text counts for a prediction, by three methods.

References: Simonyan et al. 2014 (arXiv 1312.6034) and Shrikumar et al. 2016 (arXiv 1605.01713) for
gradient × input; Sundararajan et al. 2017 (arXiv 1703.01365) for integrated gradients; Zeiler &
Fergus 2014 (arXiv 1311.2901), section 4.2, for occlusion.

Glossary: `T` tokens, `E` width of the word embeddings, `S` steps of a path.
"""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.inspection.inspected_row import SPECIAL, InspectedRow, in_parts
from bert_tf.inspection.targets import Target


@dataclasses.dataclass(frozen=True)
class Attribution:
    """How much each piece and each word counts.

    Attributes:
        pieces: float64 `[T]`.
        words: float64 `[W]`: for gradients the sums of their pieces, for occlusion measured.
        gap: The completeness gap: score − score of the baseline − sum of `pieces`. None for methods
            that do not promise that it is 0.
        baseline: The score of the baseline, or None.
    """

    pieces: np.ndarray
    words: np.ndarray
    gap: float | None = None
    baseline: float | None = None


def gradient_times_input(model: Any, row: InspectedRow, target: Target) -> Attribution:
    """Returns the product of each piece's word vector with the gradient of the score."""
    vectors = _word_vectors(model, row.ids)  # [T, E]
    gradients = _gradients(row, target, vectors[tf.newaxis])[0]  # [T, E]
    values = np.einsum("te,te->t", gradients, vectors.numpy().astype(np.float64))
    return Attribution(values, row.sum_of_words(values))


def integrated_gradients(
    model: Any, row: InspectedRow, target: Target, steps: int = 32
) -> Attribution:
    """Returns the gradients along the line from a baseline to the text, times its length.

    The baseline is the row with all pieces hidden by `[MASK]` (`[UNK]` without one). Special tokens
    stay, and their values are zero.

    Args:
        model: The model.
        row: The row.
        target: What is explained.
        steps: The number of points of the line, which are the middles of as many equal parts.
    """
    vectors = _word_vectors(model, row.ids)  # [T, E]
    hidden = np.where(row.words == SPECIAL, row.ids, row.hiding_id)
    start = _word_vectors(model, hidden)
    change = vectors - start
    shares = (np.arange(steps, dtype=np.float32) + 0.5) / steps  # [S]

    def compute(part):
        points = start + shares[part, np.newaxis, np.newaxis] * change  # [S, T, E]
        return _gradients(row, target, points)

    gradients = in_parts(steps, len(row), compute).mean(axis=0)  # [S, T, E] -> [T, E]
    values = np.einsum("te,te->t", gradients, change.numpy().astype(np.float64))
    ends = tf.stack([vectors, start])  # [2, T, E]
    score, baseline = target.score(row.copies(2, word_vectors=ends)).numpy().tolist()
    gap = score - baseline - float(values.sum())
    return Attribution(values, row.sum_of_words(values), gap, baseline)


def occlusion(row: InspectedRow, target: Target) -> Attribution:
    """Returns how much the score falls when a piece, or all pieces of a word, is hidden.

    They are replaced by `[MASK]` (`[UNK]` without one). The values of special tokens are zero.
    """
    places = np.flatnonzero(row.words != SPECIAL)
    is_hidden = np.zeros([1 + len(places) + row.num_words, len(row)], bool)
    is_hidden[1 + np.arange(len(places)), places] = True
    is_hidden[1 + len(places) + row.words[places], places] = True
    token_ids = np.where(is_hidden, row.hiding_id, row.ids).astype(np.int32)

    def compute(part):
        ids = tf.constant(token_ids[part])
        return target.score(row.copies(len(ids), token_ids=ids))

    scores = in_parts(len(token_ids), len(row), compute).astype(np.float64)
    falls = scores[0] - scores[1:]
    pieces = np.zeros(len(row))
    pieces[places] = falls[: len(places)]
    return Attribution(pieces, falls[len(places) :])


def has_gradients(model: Any) -> bool:
    """Returns whether the model has gradients: not with prepacked or quantized kernels."""
    return not model.backbone.is_prepacked and model.backbone.quantization is None


def _word_vectors(model, ids):
    """Returns the word embeddings of ids `[T]`, float32 `[T, E]`."""
    return tf.cast(tf.gather(model.backbone.embeddings.word_table(), ids), tf.float32)


def _gradients(row, target, vectors):
    """Returns the gradients of the scores at word vectors `[B, T, E]`, float64 of that shape."""
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(vectors)
        score = target.score(row.copies(vectors.shape[0], word_vectors=vectors))
    # Rows do not depend on each other, so the gradient of the sum has that of every row.
    return tape.gradient(score, vectors).numpy().astype(np.float64)
