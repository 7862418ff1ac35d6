"""What the conformance tests need to know of extractive summarization."""

import dataclasses

import numpy as np

import bert_tf
from tests.conformance.task import NO_TEXT_BATCHES, VOCABULARY, Lack, Task, pieces

DOCUMENTS = [
    ["good film.", "the bad film."],
    ["a b c."],
    ["the film.", "bad good.", "e."],
    ["good.", "film.", "the.", "e."],
    ["bad bad.", "good."],
    ["the e.", "a film."],
]
LABELS = [[0, 1], [1], [0, 1, 0], [1, 0, 0, 1], [0, 1], [1, 0]]
CLS = VOCABULARY.index("[CLS]")


def _features():
    """`[CLS] sentence [SEP]` for each sentence, segments alternating, padded."""
    rows, segments = [], []
    for document in DOCUMENTS:
        parts = [["[CLS]", *pieces(sentence), "[SEP]"] for sentence in document]
        rows.append([VOCABULARY.index(piece) for part in parts for piece in part])
        segments.append([number % 2 for number, part in enumerate(parts) for _ in part])
    mask = np.arange(max(map(len, rows))) < np.array([[len(row)] for row in rows])
    token_ids, segment_ids = np.zeros([2, *mask.shape], np.int32)
    token_ids[mask], segment_ids[mask] = sum(rows, []), sum(segments, [])
    return {"token_ids": token_ids, "segment_ids": segment_ids, "padding_mask": mask}


def _targets():
    """int32 `[B, T]`: the labels at `[CLS]`."""
    starts = FEATURES["token_ids"] == CLS
    targets = np.full(starts.shape, -100, np.int32)
    targets[starts] = sum(LABELS, [])
    return targets


def _summaries_by_hand(logits):
    """The two best sentences of every document."""
    found = []
    for document, ids, row in zip(DOCUMENTS, FEATURES["token_ids"], np.asarray(logits)):
        scores = row[np.flatnonzero(ids == CLS)]
        best = sorted(np.argsort(-scores, kind="stable")[:2])
        found.append(" ".join(document[number] for number in best))
    return found


FEATURES = _features()
TASKS = {
    "extractive summarization": Task(
        bert_tf.BertSentenceExtractor,
        FEATURES,
        {"num_sentences": 2, "max_length": 20},
        DOCUMENTS,
        LABELS,
        _targets(),
        # The same sentences, as they are found in a text.
        asked=[" ".join(document) for document in DOCUMENTS],
        asked_features=FEATURES,
        answers=lambda model, asked, **batching: model.summarize(asked, **batching),
        by_hand=_summaries_by_hand,
        signature=("text",),
        served=lambda outputs: [text.decode() for text in outputs["summary"].numpy()],
        lacks={
            **NO_TEXT_BATCHES,
            "datasets to predict": Lack("test_model.py has the error"),
            "other losses": Lack("labels are of sentences", "must be left out"),
        },
        saved={"num_sentences": 4, "trigram_blocking": False, "num_sentence_layers": 2},
    )
}
TASKS["summarization with sentence layers"] = dataclasses.replace(
    TASKS["extractive summarization"],
    options={**TASKS["extractive summarization"].options, "num_sentence_layers": 2},
    saved={},
    is_variant=True,
)
