"""The answers of a model when attention heads are switched off.

Reference: Michel et al. 2019 (arXiv 1905.10650), section 3: heads are masked one at a time.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inspection.inspected_row import InspectedRow, in_parts
from bert_tf.inspection.targets import Target, TargetAnswer


def without_each_head(
    model: Any, row: InspectedRow, target: Target
) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the listed answers, `target.answers`, with each head switched off alone.

    Returns:
        The scores, float64 `[L, N, A]`, and the probabilities, or None where there are none. NaN
        for pruned heads.
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

    Args:
        model: The model.
        row: The row.
        target: Its answers.
        heads: Pairs of a layer and a head, both counted from 0 and as before any pruning.

    Raises:
        UserError: If there is no such head.
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
