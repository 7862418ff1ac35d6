"""What the conformance tests need to know of sparse encoders."""

import numpy as np

import bert_tf
from bert_tf.training import MarginMSELoss
from tests.conformance.task import CONFIG, PAIRS, ROWS, TEXTS, Lack, Task, encoded, grouped

OTHERS = ["a", "film", "the bad", "good good", "e d c", "bad"]
MARGINS = np.array([1.0, -0.5, 0.25, 2.0, 0.0, 1.0], np.float32)


def _served(outputs):
    """The terms of each text as a dense vector."""
    outputs = {name: values.numpy() for name, values in outputs.items()}
    vectors = np.zeros([ROWS, CONFIG.vocab_size], np.float32)
    for row, count in enumerate(outputs["term_count"]):
        vectors[row, outputs["term_id"][row, :count]] = outputs["term_weight"][row, :count]
    return vectors


TASKS = {
    "sparse encoding": Task(
        bert_tf.BertSparseEncoder,
        grouped(encoded([text for row in zip(TEXTS, PAIRS, OTHERS) for text in row]), 3),
        {"max_length": 20},
        (TEXTS, PAIRS, OTHERS),
        MARGINS,
        MARGINS,
        {"objective": MarginMSELoss()},
        asked=TEXTS,
        asked_features=encoded(TEXTS),
        answers=lambda model, asked, **batching: model.encode(asked, **batching).toarray(),
        signature=("text",),
        served=_served,
        lacks={"other losses": Lack("an objective has its own loss", "own loss")},
        # The gradient of a maximum jumps where two tokens nearly have it; here none do.
        seed=8,
        saved={"pooling": "sum", "activation": "log1p_relu", "max_active_dims": 40},
    )
}
