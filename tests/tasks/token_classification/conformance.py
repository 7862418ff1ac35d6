"""What the conformance tests need to know of token classification."""

import dataclasses
import re

import numpy as np

import bert_tf
from tests.conformance.task import NO_TEXT_BATCHES, TEXTS, Lack, Task, encoded

WORDS = [re.findall(r"\w+|[^\w\s]", text) for text in TEXTS]
WORD_LABELS = ["n", "v", "."]


def _label_words():
    """Words to labels: any rule does."""
    rule = {".": "."}
    return [[rule.get(word, "n" if word in "good film" else "v") for word in row] for row in WORDS]


def _word_targets():
    """int32 `[B, T]`: every word is one piece, the others are not labelled."""
    targets = np.full(encoded(TEXTS)["token_ids"].shape, -100, np.int32)
    for row, labels in enumerate(_label_words()):
        targets[row, 1 : 1 + len(labels)] = [WORD_LABELS.index(label) for label in labels]
    return targets


def _tags_by_hand(logits):
    """Every word with its characters and its most probable label."""
    found = []
    for text, row in zip(TEXTS, np.asarray(logits)):
        words = list(re.finditer(r"\w+|[^\w\s]", text))
        tags = [WORD_LABELS[index] for index in row[1 : 1 + len(words)].argmax(-1)]
        found.append([(word.start(), word.end(), tag) for word, tag in zip(words, tags)])
    return found


def _tags_served(outputs):
    columns = [outputs[f"entity_{name}"].numpy() for name in ("start", "end", "label")]
    return [
        [(int(a), int(b), label.decode()) for a, b, label in list(zip(*row))[:count]]
        for row, count in zip(zip(*columns), outputs["entity_count"].numpy())
    ]


TASKS = {
    "token classification": Task(
        bert_tf.BertTokenClassifier,
        encoded(TEXTS),
        {"labels": WORD_LABELS, "max_length": 20},
        WORDS,
        _label_words(),
        _word_targets(),
        asked=TEXTS,
        answers=lambda model, asked, **batching: [
            [tuple(span)[:3] for span in row] for row in model.tag(asked, **batching)
        ],
        by_hand=_tags_by_hand,
        signature=("text",),
        served=_tags_served,
        lacks=NO_TEXT_BATCHES,
        saved={"use_crf": True, "dropout": 0.3, "space_before_all_words": True},
    )
}
TASKS["tagging with a CRF"] = dataclasses.replace(
    TASKS["token classification"],
    options={"labels": WORD_LABELS, "use_crf": True},
    saved={},
    lacks={
        "text": Lack("a path is no maximum of logits; test_model.py has its answers"),
        "serving": Lack("tests/serving/test_tasks.py has it"),
        "other losses": Lack("it has the loss of paths alone", "over the paths of a sentence"),
    },
    is_variant=True,
)
TASKS["tagging with an LSTM"] = dataclasses.replace(
    TASKS["token classification"],
    options={"labels": WORD_LABELS, "max_length": 20, "lstm_units": [5]},
    saved={"lstm_bidirectional": False, "use_crf": True},
    lacks={
        **NO_TEXT_BATCHES,
        "other formats": Lack("they have no names for the LSTM", "no names for the weights .*lstm"),
    },
    is_variant=True,
)
