"""What the conformance tests need to know of replaced token detection."""

import re

import numpy as np

import bert_tf
from tests.conformance.task import NO_TEXT_BATCHES, TEXTS, Lack, Task, encoded, pieces


def _targets():
    """int32 `[B, T]`: 0 at `[CLS]`, `[SEP]` and padding, which does not count; else any rule."""
    targets = np.zeros(encoded(TEXTS)["token_ids"].shape, np.int32)
    for row, text in enumerate(TEXTS):
        labels = [piece in ("bad", "a", "film") for piece in pieces(text)]
        targets[row, 1 : len(labels) + 1] = labels
    return targets


def _pieces_by_hand(logits):
    """Every piece with its characters and the sigmoid of its logit."""
    found = []
    for text, row in zip(TEXTS, np.asarray(logits)):
        places = [(match.start(), match.end()) for match in re.finditer(r"\w+|[^\w\s]", text)]
        scores = (1 / (1 + np.exp(-row[1 : 1 + len(places)]))).tolist()
        found.append(list(zip(*zip(*places), pieces(text), scores)))
    return found


def _pieces_served(outputs):
    names = ("piece_start", "piece_end", "piece", "probability")
    columns = [outputs[name].numpy() for name in names]
    return [
        [
            (int(start), int(end), piece.decode(), float(score))
            for start, end, piece, score in list(zip(*row))[:count]
        ]
        for row, count in zip(zip(*columns), outputs["piece_count"].numpy())
    ]


TASKS = {
    "replaced token detection": Task(
        bert_tf.BertReplacedTokenDetector,
        encoded(TEXTS),
        {"max_length": 20},
        TEXTS,
        targets=_targets(),
        answers=lambda model, asked, **batching: [
            [tuple(piece) for piece in row] for row in model.detect(asked, **batching)
        ],
        by_hand=_pieces_by_hand,
        signature=("text",),
        served=_pieces_served,
        lacks={
            **NO_TEXT_BATCHES,
            "training on text": Lack("tokens are replaced by ids", "must be token dictionaries"),
            "other losses": Lack("labels are of tokens", "must be left out"),
        },
    )
}
