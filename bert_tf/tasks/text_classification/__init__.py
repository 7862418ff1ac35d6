"""Text classification and regression, of single texts and of pairs."""

from bert_tf.base.json_schema import FLAG, may_lack, number, optional, text
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import (
    CLASS_AXIS,
    CLASS_OPTIONS,
    CLASSES,
    POOLING,
    SCALAR_MIX,
    USE_SCALAR_MIX,
    Answers,
    Serving,
    TaskSpec,
    layer_head,
)
from bert_tf.models.weight_rows import OUTPUT
from bert_tf.tasks.masked_lm import HEAD as LANGUAGE_MODEL_HEAD

HEAD = layer_head("classifier", OUTPUT, "classifier", "", "task/dense", "classifier/out_proj")
SPEC = TaskSpec(
    name="text_classification",
    model="BertTextClassifier",
    architectures=("BertForSequenceClassification",),
    preprocessor="TextClassificationPreprocessor",
    heads={"classifier": HEAD},
    optional_heads={"language_model_head": LANGUAGE_MODEL_HEAD, "scalar_mix": SCALAR_MIX},
    serving=Serving(
        "TextClassificationModule",
        outputs={
            "label": "The most probable label.",
            "labels": "The labels' names, in the order of the probabilities.",
            "probabilities": "One per label: softmax of the logits; for several labels, sigmoid.",
            "score": "The number that a regression predicts.",
            "logits": "What the classifier computes, before softmax or sigmoid.",
        },
        takes_pairs=True,
        details={"problem_type": "problem_type", "labels": "class_names"},
    ),
    distilled_as=CLASSES,
    output_axes=(CLASS_AXIS,),
    answers={
        "classify": Answers("classify", (1, 2)),
        "rerank": Answers("classify", (2,), are_scores=True),
    },
    options={
        **CLASS_OPTIONS,
        "problem_type": optional(text()),
        "pooling": POOLING,
        "lm_loss_weight": may_lack(number("at least 0", lambda value: value >= 0)),
        "both_orders": may_lack(FLAG),
        "use_scalar_mix": USE_SCALAR_MIX,
    },
    built_with=(
        "num_classes",
        "problem_type",
        "pooling",
        "dropout",
        "lm_loss_weight",
        "both_orders",
        "use_scalar_mix",
    ),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "Classification": ".preprocessor",
        **dict.fromkeys(("ClassificationTask", "TextExample"), ".files"),
        **dict.fromkeys(("TASKS", "table_task", "xnli_task"), ".official_tasks"),
    },
)
