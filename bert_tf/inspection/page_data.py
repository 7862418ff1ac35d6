"""An `Inspection` as values of JSON, for the page.

Attention takes most of the space, so its weights become bytes: weight w is the byte round(255 √w),
which keeps small weights (the step is 0.000015 at 0 and 0.008 at 1). The bytes of a layer are
compressed together (zlib) and sent in base64; the page unpacks a layer when it is shown.
"""

import base64
import math
import zlib
from typing import Any

import numpy as np

from bert_tf.inspection.candidates import PieceCandidates
from bert_tf.inspection.inspection import Inspection
from bert_tf.inspection.neighbours import Neighbours
from bert_tf.inspection.targets import Target, TargetAnswer

_FAST = 1  # zlib's level: 3 times as fast as the default, for files that are a few % larger


def page_data(inspection: Inspection) -> dict[str, Any]:
    """Returns what the page shows, as values of JSON."""
    row, readable = inspection.row, inspection.row.readable
    layers, heads = inspection.attentions.shape[:2]
    return {
        "model": inspection.model_name,
        "task": inspection.task,
        "texts": list(row.texts),
        "pieces": row.pieces,
        "ids": row.ids.tolist(),
        "textOf": row.text_numbers.tolist(),
        "starts": row.starts.tolist(),
        "ends": row.ends.tolist(),
        "words": row.words.tolist(),
        "numCut": row.num_cut,
        "layers": layers,
        "heads": heads,
        "kept": inspection.kept_heads,
        "attentions": [packed_weights(layer) for layer in inspection.attentions],
        "rollout": [packed_weights(layer) for layer in inspection.rollout],
        "target": None if inspection.target is None else _target(inspection.target),
        "attributions": {
            name: {
                "pieces": rounded(found.pieces),
                "words": rounded(found.words),
                "gap": rounded(found.gap),
                "baseline": rounded(found.baseline),
            }
            for name, found in inspection.attributions.items()
        },
        "masked": _candidates(inspection.masked_words, readable),
        "lens": _candidates(inspection.lens, readable),
        "nearTokens": _neighbours(inspection.near_tokens, None),
        "nearPieces": _neighbours(inspection.near_pieces, readable),
        "headScores": rounded(inspection.head_scores),
        "headProbabilities": rounded(inspection.head_probabilities),
        "leftOut": inspection.left_out,
    }


def answers_data(answers: list[TargetAnswer]) -> list[dict[str, Any]]:
    """Returns answers as values of JSON."""
    return [answer._asdict() for answer in answers]


def packed_weights(weights: np.ndarray) -> str:
    """Returns weights from 0 to 1, of any shape, as compressed bytes in base64.

    Example:
        >>> import base64, zlib
        >>> packed = base64.b64decode(packed_weights(np.array([0.0, 0.25, 1.0])))
        >>> list(zlib.decompress(packed))
        [0, 128, 255]
    """
    values = np.rint(255 * np.sqrt(np.clip(weights, 0, 1))).astype(np.uint8)
    return base64.b64encode(zlib.compress(values.tobytes(), _FAST)).decode()


def rounded(values: np.ndarray | None) -> Any:
    """Returns numbers with 5 digits as nested lists; None for what is no number.

    Example:
        >>> rounded(np.array([[1.234567, np.nan]]))
        [[1.2346, None]]
    """
    if values is None:
        return None
    return _each(np.asarray(values, np.float64).tolist())


def _each(values):
    if isinstance(values, list):
        return [_each(value) for value in values]
    return float(f"{values:.5g}") if math.isfinite(values) else None


def _target(target: Target):
    return {
        "name": target.name,
        "number": target.number,
        "piece": target.piece,
        "isSimilarity": target.is_similarity,
        "answers": answers_data(target.answers),
        "pieceLabels": target.piece_labels,
    }


def _candidates(found: PieceCandidates | None, readable):
    if found is None:
        return None
    table = _table(found.ids, found.probabilities, readable)
    return {**table, "own": rounded(found.own.reshape(-1))}


def _neighbours(found: Neighbours | None, readable):
    return None if found is None else _table(found.numbers, found.cosines, readable)


def _table(numbers, values, readable):
    """Returns flat lists of k entries for each place, and the text of each number that occurs."""
    flat = numbers.reshape(-1).tolist()
    table = {"k": numbers.shape[-1], "numbers": flat, "values": rounded(values.reshape(-1))}
    if readable is not None:
        table["labels"] = {number: readable[number] for number in set(flat)}
    return table
