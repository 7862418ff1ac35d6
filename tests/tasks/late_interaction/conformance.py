"""What the conformance tests need to know of late interaction."""

import numpy as np

import bert_tf
from tests.conformance.task import PAIRS, ROWS, TEXTS, VOCABULARY, Lack, Task, grouped, pieces

QUERY_LENGTH = 9  # longer than the queries, so that all have a `[MASK]`
OTHERS = ["a", "film", "the bad.", "good good", "e d c", "bad"]


def encoded(queries, *columns):
    """Queries with their markers and `[MASK]`, and documents with theirs, as arrays `[B, K, T]`."""
    rows = []
    for query, *documents in zip(queries, *columns):
        row = ["[CLS]", "[unused0]", *pieces(query), "[SEP]"]
        rows.append(row + ["[MASK]"] * (QUERY_LENGTH - len(row)))
        rows += [["[CLS]", "[unused1]", *pieces(document), "[SEP]"] for document in documents]
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    token_ids, segment_ids = np.zeros([2, *mask.shape], np.int32)
    token_ids[mask] = [VOCABULARY.index(piece) for piece in sum(rows, [])]
    features = {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}
    return grouped(features, 1 + len(columns))


TASKS = {
    "late interaction": Task(
        bert_tf.BertLateInteractionEncoder,
        encoded(TEXTS, PAIRS, OTHERS),
        {"dim": 6, "query_max_length": QUERY_LENGTH},
        (TEXTS, PAIRS, OTHERS),
        targets=np.zeros(ROWS, np.int32),
        # With it, a loss is that of the rows that are computed at once.
        compiled={"in_batch_negatives": False},
        asked=(TEXTS, PAIRS),
        asked_features=encoded(TEXTS, PAIRS),
        answers=lambda model, asked, **batching: model.score(*asked, **batching),
        by_hand=lambda scores: np.asarray(scores)[:, 0],
        signature=("query", "document"),
        served=lambda outputs: outputs["score"].numpy(),
        lacks={
            "other losses": Lack("labels are scores of a teacher"),
            "datasets to predict": Lack("`predict` returns scores of lists, and answers of pairs"),
            "datasets of text": Lack("Keras takes three columns without labels for (x, y, weight)"),
        },
        saved={
            "dim": 5,
            "query_max_length": 7,
            "query_marker": "[unused3]",
            "document_marker": "[unused4]",
            "query_augmentation": False,
            "attend_to_mask_tokens": True,
            "mask_punctuation": False,
            "max_length": 20,
        },
    )
}
