"""Token classification: a label for every word, and spans of words."""

from bert_tf.base.json_schema import FLAG, may_lack
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import OUTPUT, VECTOR, layer_row

# Named as in pytorch-crf; [from, to] there too.
_CRF = task_spec.Head(
    "crf",
    tuple(
        layer_row(VECTOR, name, f"crf.{name}")
        for name in ("transitions", "start_transitions", "end_transitions")
    ),
)
SPEC = task_spec.TaskSpec(
    name="token_classification",
    model="BertTokenClassifier",
    architectures=("BertForTokenClassification",),
    decoded_by="tag",
    preprocessor="TokenClassificationPreprocessor",
    examples=task_spec.Examples(are_lists=True, are_cut=True),
    labels=task_spec.Labels(are_required=True),
    token_axis=1,
    inputs={"word_starts": task_spec.TaskInput("bool", (None,))},
    heads={"classifier": task_spec.layer_head("token_classifier", OUTPUT, "classifier", "")},
    optional_heads={"crf": _CRF, "scalar_mix": task_spec.SCALAR_MIX, "lstm": task_spec.LSTM},
    uses_pooler=False,
    serving=task_spec.Serving(
        "TokenClassificationModule",
        outputs={
            "entity_count": "How many entities the text has; what follows is padding.",
            "entity_text": "The entities, pieces of the text.",
            "entity_label": "What each is.",
            "entity_start": "Its first character in the text, in code points.",
            "entity_end": "The one after its last.",
        },
        token_outputs={
            "logits": "Of each label at each token; those of the first piece of a word count. "
            "With a CRF its emissions."
        },
        details={"labels": "labels"},
    ),
    distilled_as=task_spec.CLASSES,
    output_axes=(task_spec.TOKEN_AXIS, task_spec.CLASS_AXIS),
    answers={"tag": task_spec.Answers("tag")},
    options={
        **task_spec.CLASS_OPTIONS,
        "use_crf": may_lack(FLAG),
        "use_scalar_mix": task_spec.USE_SCALAR_MIX,
        **task_spec.LSTM_OPTIONS,
        "space_before_all_words": may_lack(FLAG),
    },
    built_with=("num_classes", "use_crf", "dropout", "use_scalar_mix", *task_spec.LSTM_OPTIONS),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "TaggedSpan": ".preprocessor",
        "TaggingScores": ".metrics",
        "tagging_intervals": ".metrics",
        "tagging_scores": ".metrics",
        **dict.fromkeys(("Span", "convert_tags", "spans_of_tags", "tags_of_spans"), ".tag_schemes"),
        **dict.fromkeys(
            ("TaggedSentence", "read_conll", "read_tag_predictions", "read_word_tag"), ".files"
        ),
    },
)
