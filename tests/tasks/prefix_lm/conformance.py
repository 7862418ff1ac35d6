"""What the conformance tests need to know of prefix language models."""

import numpy as np

import bert_tf
from tests.conformance.task import PAIRS, TEXTS, Lack, Task, encoded


def targets() -> np.ndarray:
    """The next token where that is one of the target, else -100."""
    features = encoded(TEXTS, PAIRS)
    labels = np.full_like(features["token_ids"], -100)
    in_target = features["segment_ids"][:, 1:] == 1
    labels[:, :-1][in_target] = features["token_ids"][:, 1:][in_target]
    return labels


TASKS = {
    "prefix LM": Task(
        bert_tf.BertPrefixLM,
        encoded(TEXTS, PAIRS),
        text=(TEXTS, PAIRS),
        targets=targets(),
        saved={"max_length": 14, "max_target_length": 9},
        lacks={
            "datasets to predict": Lack(
                "their batches of several lengths are no array", "list of texts"
            ),
            "serving": Lack("its answers are generated, not computed: see test_generate.py"),
        },
    )
}
