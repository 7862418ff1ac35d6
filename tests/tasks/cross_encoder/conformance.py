"""What the conformance tests need to know of cross-encoders."""

import dataclasses

import numpy as np

import bert_tf
from tests.conformance.task import PAIRS, ROWS, TEXTS, Lack, Task, encoded, grouped

OTHERS = ["a", "film", "the bad", "good good", "e d c", "bad"]
SCORES = np.array([1.0, 0.0, 0.25, 0.75, 0.0, 1.0], np.float32)


def _of_lists():
    """The rows of each query with its two documents, `[B, 2, T]`."""
    queries = [text for text in TEXTS for _ in range(2)]
    documents = [text for pair in zip(PAIRS, OTHERS) for text in pair]
    return grouped(encoded(queries, documents), 2)


def _sigmoid(logits):
    return 1 / (1 + np.exp(-np.asarray(logits, np.float64)))


_LACKS = {
    "other losses": Lack("labels are no classes"),
    "datasets to predict": Lack("`predict` returns logits, and answers are scores"),
}
TASKS = {
    "cross-encoder": Task(
        bert_tf.BertCrossEncoder,
        encoded(TEXTS, PAIRS),
        {"max_length": 20},
        (TEXTS, PAIRS),
        SCORES,
        SCORES[:, np.newaxis],
        answers=lambda model, asked, **batching: model.score(*asked, **batching),
        by_hand=lambda logits: _sigmoid(logits)[:, 0],
        signature=("query", "document"),
        served=lambda outputs: outputs["score"].numpy(),
        lacks=_LACKS,
        saved={"activation": "identity", "dropout": 0.3},
    )
}
TASKS["cross-encoder on lists"] = dataclasses.replace(
    TASKS["cross-encoder"],
    features=_of_lists(),
    text=(TEXTS, PAIRS, OTHERS),
    labels=None,
    targets=np.zeros(ROWS, np.int32),
    answers=lambda model, asked, **batching: model.predict_decoded(asked, **batching),
    by_hand=_sigmoid,
    saved={},
    lacks={
        **_LACKS,
        "serving": Lack("a request has pairs"),
        "datasets of text": Lack("Keras takes three columns without labels for (x, y, weight)"),
    },
    is_variant=True,
)
