"""What the conformance tests need to know of next sentence prediction."""

import bert_tf
from tests.conformance.task import CLASSES, PAIRS, TEXTS, Task, encoded

TASKS = {
    "next sentence": Task(
        bert_tf.BertNextSentencePredictor,
        encoded(TEXTS, PAIRS),
        {"max_length": 20},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        signature=("text", "pair"),
    )
}
