"""Text classification and regression, of single texts and of pairs."""

from bert_tf.base.json_schema import FLAG, may_lack, number, optional, text
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import OUTPUT
from bert_tf.tasks.masked_lm import HEAD as LANGUAGE_MODEL_HEAD

HEAD = task_spec.layer_head(
    "classifier", OUTPUT, "classifier", "", "task/dense", "classifier/out_proj"
)
SPEC = task_spec.TaskSpec(
    name="text_classification",
    model="BertTextClassifier",
    architectures=("BertForSequenceClassification",),
    preprocessor="TextClassificationPreprocessor",
    heads={"classifier": HEAD},
    uses_pooler=False,  # except with some values of `pooling`
    optional_heads={
        "language_model_head": LANGUAGE_MODEL_HEAD,
        "scalar_mix": task_spec.SCALAR_MIX,
        "lstm": task_spec.LSTM,
    },
    serving=task_spec.Serving(
        "TextClassificationModule",
        outputs={
            "label": "The most probable label, or that of the model's threshold.",
            "labels": "The labels' names, in the order of the probabilities.",
            "probabilities": "One per label: softmax of the logits; for several labels, sigmoid.",
            "score": "The number that a regression predicts.",
            "logits": "What the classifier computes, before softmax or sigmoid.",
        },
        takes_pairs=True,
        details={"problem_type": "problem_type", "labels": "class_names", "threshold": "threshold"},
    ),
    distilled_as=task_spec.CLASSES,
    output_axes=(task_spec.CLASS_AXIS,),
    answers={
        "classify": task_spec.Answers("classify", (1, 2)),
        "rerank": task_spec.Answers("classify", (2,), are_scores=True),
    },
    options={
        **task_spec.CLASS_OPTIONS,
        "problem_type": optional(text()),
        "pooling": task_spec.POOLING,
        "lm_loss_weight": may_lack(number("at least 0", lambda value: value >= 0)),
        "both_orders": may_lack(FLAG),
        "use_scalar_mix": task_spec.USE_SCALAR_MIX,
        **task_spec.LSTM_OPTIONS,
        "threshold": optional(number("in [0, 1]", lambda value: 0 <= value <= 1)),
    },
    built_with=(
        "num_classes",
        "problem_type",
        "pooling",
        "dropout",
        "lm_loss_weight",
        "both_orders",
        "use_scalar_mix",
        *task_spec.LSTM_OPTIONS,
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
