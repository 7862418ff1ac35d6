"""What the conformance tests need to know of text classification."""

import bert_tf
from tests.conformance.task import CLASSES, PAIRS, TEXTS, Task, encoded

TASKS = {
    "text classification": Task(
        bert_tf.BertTextClassifier,
        encoded(TEXTS),
        {"labels": ["bad", "good"], "max_length": 20},
        TEXTS,
        [("bad", "good")[label] for label in CLASSES],
        CLASSES,
        {"metrics": ["accuracy"]},
        signature=("text",),
        saved={"pooling": "mean_max", "dropout": 0.4},
    ),
    "pair classification": Task(
        bert_tf.BertTextClassifier,
        encoded(TEXTS, PAIRS),
        {"num_classes": 2, "pooling": "mean"},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        signature=("text", "pair"),
        exported={"pairs": True},
        is_variant=True,
    ),
}
