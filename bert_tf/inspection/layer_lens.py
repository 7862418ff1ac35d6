"""The lens: what the masked-LM head would predict from the vectors of each layer.

Reference: nostalgebraist 2020, "interpreting GPT: the logit lens". The head was trained on the last
layer only, so what it says about early layers is a rough guide.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.inspection.candidates import (
    LOGITS_AT_ONCE,
    PieceCandidates,
    best_candidates,
    join_candidates,
)
from bert_tf.inspection.inspected_row import InspectedRow


def layer_lens(
    model: Any, row: InspectedRow, hidden_states: np.ndarray, top_k: int = 5
) -> PieceCandidates:
    """Returns the most probable pieces for every token after every layer.

    Args:
        model: A model with a masked-LM head.
        row: The row.
        hidden_states: float32 `[L + 1, T, H]`, of which the first are the embeddings.
        top_k: How many pieces.

    Returns:
        `PieceCandidates` of places `[L + 1, T]`.
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
