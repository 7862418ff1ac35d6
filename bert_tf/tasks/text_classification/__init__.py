"""Text classification and regression, of single texts and of pairs."""

from bert_tf.json_schema import optional, text
from bert_tf.lazy_names import lazy_names
from bert_tf.models.task_spec import CLASS_AXIS, CLASS_OPTIONS, CLASSES, POOLING, Head, TaskSpec
from bert_tf.models.weight_rows import OUTPUT, Row

HEAD = Head("classifier", (Row(OUTPUT, "", "classifier", "", "task/dense", "classifier/out_proj"),))
SPEC = TaskSpec(
    name="text_classification",
    model="BertTextClassifier",
    architectures=("BertForSequenceClassification",),
    heads={"classifier": HEAD},
    serving="TextClassificationModule",
    distilled_as=CLASSES,
    output_axes=(CLASS_AXIS,),
    options={**CLASS_OPTIONS, "problem_type": optional(text()), "pooling": POOLING},
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Classification": ".preprocessor",
        **dict.fromkeys(("ClassificationTask", "TextExample"), ".files"),
        **dict.fromkeys(("TASKS", "table_task", "xnli_task"), ".official_tasks"),
    },
)
