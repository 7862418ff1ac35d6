"""What the conformance tests need to know of pre-training."""

import bert_tf
from tests.conformance.task import CLASSES, Lack, Task
from tests.tasks.masked_lm.conformance import masked_features, masked_targets

TASKS = {
    "pre-training": Task(
        bert_tf.BertPretrainer,
        masked_features(),
        targets={**masked_targets(), "next_sentence_labels": CLASSES},
        lacks={
            "text": Lack("its texts come masked and in pairs, from bert_tf.inputs", "data type"),
            "serving": Lack("its answers are of no use", "Received: BertPretrainer"),
        },
        saved={"objective": "mlm_sop"},
    )
}
