"""How much tokens, pieces, words and attention heads count for what a model computes.

References: Abnar & Zuidema 2020 (arXiv 2005.00928), section 3.1, for attention rollout; Simonyan et
al. 2014 (arXiv 1312.6034) and Shrikumar et al. 2016 (arXiv 1605.01713) for gradient × input;
Sundararajan et al. 2017 (arXiv 1703.01365) for integrated gradients; Zeiler & Fergus 2014 (arXiv
1311.2901), section 4.2, for occlusion; Michel et al. 2019 (arXiv 1905.10650), section 3, for heads,
which are masked one at a time.

Glossary: `T` tokens, `E` width of the word embeddings, `S` steps of a path, `L` layers, `N` heads,
`A` answers.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inspection.targets import SPECIAL, InspectedRow, Target, TargetAnswer, in_parts

# The residual connection adds a token's own vector to what it attends to, so both count half.
RESIDUAL_SHARE = 0.5


def attention_rollout(attentions: np.ndarray) -> np.ndarray:
    """Returns the attention of every layer to the tokens of the input.

    Args:
        attentions: The probabilities of the heads, `[L, N, T, T]`; rows of zeros for heads that are
            pruned.

    Returns:
        float64 `[L, T, T]`; row i of layer l says how much of each token of the input is in token i
        after layer l. Rows sum to 1.

    Example:
        >>> uniform = np.full([2, 1, 2, 2], 0.5)
        >>> attention_rollout(uniform)[-1]
        array([[0.625, 0.375],
               [0.375, 0.625]])
    """
    mean = np.sum(attentions, axis=1, dtype=np.float64)  # [L, N, T, T] -> [L, T, T]
    mean /= mean.sum(axis=-1, keepdims=True)  # the heads that are there count alike
    own = np.eye(mean.shape[-1])
    rolled, layers = own, []
    for layer in mean:
        mixed = RESIDUAL_SHARE * own + (1 - RESIDUAL_SHARE) * layer
        rolled = mixed @ rolled
        layers.append(rolled)
    return np.stack(layers)


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
    stay, and their values are zero. The gradients are computed at the middles of `steps` equal
    parts of the line.
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


def without_each_head(
    model: Any, row: InspectedRow, target: Target
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the listed answers, `target.answers`, with each head switched off alone.

    These are the scores, float64 `[L, N, A]`, and the probabilities, or None where there are none.
    NaN is for pruned heads.
    """
    config = model.backbone.config
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    masks = 1 - np.eye(layers * heads, dtype=np.float32).reshape(-1, layers, heads)
    numbers = [answer.number for answer in target.answers]

    def compute(part):
        tokens = row.copies(part.stop - part.start, head_mask=tf.constant(masks[part]))
        scores = target.scores_of_all(tokens).numpy()
        probabilities = target.probabilities(scores)
        kept = scores if probabilities is None else probabilities
        return np.stack([scores[:, numbers], kept[:, numbers]], axis=1).astype(np.float64)

    found = in_parts(len(masks), len(row), compute)  # [L N, 2, A]
    found = found.reshape(layers, heads, 2, -1)
    for layer in range(layers):
        found[layer, np.delete(np.arange(heads), config.kept_heads(layer))] = np.nan
    has_probabilities = target.answers[0].probability is not None
    return found[:, :, 0], found[:, :, 1] if has_probabilities else None


def without_heads(
    model: Any, row: InspectedRow, target: Target, heads: Iterable[tuple[int, int]]
) -> list[TargetAnswer]:
    """Returns the listed answers of the target when several heads are switched off together.

    `heads` are pairs of a layer and a head, both counted from 0 and as before any pruning. Raises
    `UserError` if there is no such head.
    """
    config = model.backbone.config
    mask = np.ones([1, config.num_hidden_layers, config.num_attention_heads], np.float32)
    heads = list(heads)
    for layer, head in heads:
        if not (0 <= layer < mask.shape[1] and 0 <= head < mask.shape[2]):
            raise UserError(
                f"`heads` must be pairs of a layer in [0, {mask.shape[1]}) and a head in "
                f"[0, {mask.shape[2]}). Received: heads={heads!r:.200}, of which "
                f"{(layer, head)} is none"
            )
        mask[0, layer, head] = 0
    scores = target.scores_of_all(row.copies(1, head_mask=tf.constant(mask))).numpy()  # [1, A]
    probabilities = target.probabilities(scores)
    return [
        answer._replace(
            score=float(scores[0, answer.number]),
            probability=None if probabilities is None else float(probabilities[0, answer.number]),
        )
        for answer in target.answers
    ]
