"""What the conformance tests need to know of feature extraction."""

import bert_tf
from tests.conformance.task import TEXTS, Lack, Task, encoded

TASKS = {
    "features": Task(
        bert_tf.BertFeatureExtractor,
        encoded(TEXTS),
        {"layer_indices": [-1, 0], "combine": "concat"},
        TEXTS,
        lacks={
            "training": Lack("it has no head and no loss", "No loss"),
            "serving": Lack("it is for programs in Python", "Received: BertFeatureExtractor"),
        },
        saved={"layer_indices": [0, 1], "combine": "mean", "max_length": 8},
    )
}
