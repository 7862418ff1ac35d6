"""Cross-encoders: a score for a pair of texts, to rank documents for a query."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import ACTIVATION, CLASS_AXIS, DROPOUT, NUMBERS, RERANK, TaskSpec
from bert_tf.tasks import text_classification

SPEC = TaskSpec(
    name="cross_encoder",
    model="BertCrossEncoder",
    architectures=("BertForSequenceClassification",),  # with one label
    heads={"classifier": text_classification.HEAD},
    serving="CrossEncoderModule",
    files="CrossEncoderFiles",
    distilled_as=NUMBERS,
    output_axes=(CLASS_AXIS,),
    forms=(RERANK,),
    options={"dropout": DROPOUT, "activation": ACTIVATION},
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"RankedDocument": "bert_tf.tasks.shared.ranked_documents"}
)
