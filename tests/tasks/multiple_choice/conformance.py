"""What the conformance tests need to know of multiple choice."""

import numpy as np

import bert_tf
from tests.conformance.task import CLASSES, PAIRS, TEXTS, Task, encoded, grouped

CHOICES = [[pair, text] for pair, text in zip(PAIRS, TEXTS[::-1])]

TASKS = {
    "multiple choice": Task(
        bert_tf.BertMultipleChoice,
        grouped(encoded(np.repeat(TEXTS, 2), sum(CHOICES, [])), 2),
        {"max_length": 20},
        (TEXTS, CHOICES),
        CLASSES,
        CLASSES,
        signature=("prompt", "choices"),
        saved={"dropout": 0.3},
    )
}
