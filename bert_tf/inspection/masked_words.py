"""What a masked language model predicts at each place of a text while the piece there is hidden.

Reference: Salazar et al. 2020 (arXiv 1910.14659), section 2: one mask at a time.
"""

from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.inspection.batches import parts
from bert_tf.inspection.candidates import PieceCandidates, best_candidates, join_candidates
from bert_tf.inspection.inspected_row import InspectedRow


def masked_words(
    model: Any, row: InspectedRow, places: np.ndarray | None = None, top_k: int = 5
) -> PieceCandidates:
    """Returns the most probable pieces at each place while only it is hidden by `[MASK]`.

    Args:
        model: A model with a masked-LM head.
        row: The row, of a tokenizer with a mask token.
        places: The tokens to hide, int `[P]`; None for all T.
        top_k: How many pieces.
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
