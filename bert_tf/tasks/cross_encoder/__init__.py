"""Cross-encoders: a score for a pair of texts, to rank documents for a query."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.tasks import text_classification

SPEC = task_spec.TaskSpec(
    name="cross_encoder",
    model="BertCrossEncoder",
    architectures=("BertForSequenceClassification",),  # with one label
    preprocessor="CrossEncoderPreprocessor",
    examples=task_spec.Examples(
        texts=(2, ...),
        form="An example is a query with one document or more. Pass (queries, documents), or "
        "(queries, positives, negatives) to train on lists.",
    ),
    labels=task_spec.Labels(no_class_weights="labels are numbers"),
    heads={"classifier": text_classification.HEAD},
    serving=task_spec.Serving(
        "preprocessor.CrossEncoderModule",
        texts={"query": "The query, UTF-8.", "document": "The document, UTF-8."},
        outputs={
            "score": "How well the document fits the query.",
            "logits": "What the last layer computes, before the activation.",
        },
    ),
    files="CrossEncoderFiles",
    distilled_as=task_spec.NUMBERS,
    output_axes=(task_spec.CLASS_AXIS,),
    forms=(task_spec.RERANK,),
    options={"dropout": task_spec.DROPOUT, "activation": task_spec.ACTIVATION},
    built_with=("dropout",),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"RankedDocument": "bert_tf.tasks.shared.ranked_documents"}
)
