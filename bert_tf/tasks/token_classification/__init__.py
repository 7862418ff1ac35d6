"""Token classification: a label for every word, and spans of words."""

from bert_tf.base.json_schema import FLAG, may_lack
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import (
    CLASS_AXIS,
    CLASS_OPTIONS,
    CLASSES,
    SCALAR_MIX,
    TOKEN_AXIS,
    USE_SCALAR_MIX,
    Answers,
    Head,
    TaskInput,
    TaskSpec,
    layer_head,
)
from bert_tf.models.weight_rows import OUTPUT, VECTOR, Row

# Named as in pytorch-crf; [from, to] there too.
_CRF = Head(
    "crf",
    tuple(
        Row(VECTOR, name, f"crf.{name}", f"crf/{name}")
        for name in ("transitions", "start_transitions", "end_transitions")
    ),
)
SPEC = TaskSpec(
    name="token_classification",
    model="BertTokenClassifier",
    architectures=("BertForTokenClassification",),
    inputs={"word_starts": TaskInput("bool", (None,))},
    heads={"classifier": layer_head("token_classifier", OUTPUT, "classifier", "")},
    optional_heads={"crf": _CRF, "scalar_mix": SCALAR_MIX},
    uses_pooler=False,
    serving="TokenClassificationModule",
    distilled_as=CLASSES,
    output_axes=(TOKEN_AXIS, CLASS_AXIS),
    answers={"tag": Answers("tag")},
    options={**CLASS_OPTIONS, "use_crf": may_lack(FLAG), "use_scalar_mix": USE_SCALAR_MIX},
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "TaggedSpan": ".preprocessor",
        "TaggingScores": ".metrics",
        "tagging_intervals": ".report",
        "tagging_scores": ".metrics",
        **dict.fromkeys(("Span", "convert_tags", "spans_of_tags", "tags_of_spans"), ".tag_schemes"),
        **dict.fromkeys(
            ("TaggedSentence", "read_conll", "read_tag_predictions", "read_word_tag"), ".files"
        ),
    },
)
