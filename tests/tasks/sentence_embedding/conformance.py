"""What the conformance tests need to know of sentence embedding."""

import bert_tf
from tests.conformance.task import CLASSES, PAIRS, TEXTS, Lack, Task, encoded, grouped

TASKS = {
    "sentence encoding": Task(
        bert_tf.BertSentenceEncoder,
        grouped(encoded([text for row in zip(TEXTS, PAIRS) for text in row]), 2),
        {"normalize": True},
        (TEXTS, PAIRS),
        CLASSES,
        CLASSES,
        {"objective": "classification"},
        asked=TEXTS,
        asked_features=encoded(TEXTS),
        answers=lambda model, asked, **batching: model.encode(asked, **batching),
        signature=("text",),
        served=lambda outputs: outputs["vector"].numpy(),
        lacks={"other losses": Lack("an objective has its own loss", "own loss")},
        saved={"pooling": "max", "max_length": 8},
    )
}
