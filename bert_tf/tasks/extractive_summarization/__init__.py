"""Extractive summarization: the sentences of a document that are its summary."""

from bert_tf.base.json_schema import FLAG, integer, may_lack
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import Examples, Head, Labels, Serving, TaskSpec, layer_head
from bert_tf.models.weight_rows import ENCODER_BLOCK, OUTPUT, layer_row

_HEAD = layer_head("sentence_scorer", OUTPUT, "sentence_scorer", "sentence_scorer")


_SENTENCE_LAYERS = Head(  # the names in files are our own
    "sentence_layers",
    rows=(),
    block_rows=tuple(
        layer_row(kind, ours, f"sentence_layers.{{index}}.{theirs}")
        for kind, ours, theirs in ENCODER_BLOCK
    ),
)
SPEC = TaskSpec(
    name="extractive_summarization",
    model="BertSentenceExtractor",
    architectures=("BertForExtractiveSummarization",),  # transformers has no such class
    decoded_by="summarize",
    preprocessor="ExtractiveSummarizationPreprocessor",
    examples=Examples(
        texts=(1,),
        form="Documents are a list of strings, or a list of lists of sentences.",
        are_lists=True,
        are_cut=True,
        are_predicted_in_datasets=False,
    ),
    labels=Labels(are_required=True, no_class_weights="an example has several labels"),
    token_axis=1,
    heads={"scorer": _HEAD},
    optional_heads={"sentence_layers": _SENTENCE_LAYERS},
    uses_pooler=False,
    serving=Serving(
        "preprocessor.ExtractiveSummarizationModule",
        outputs={
            "summary": "The best sentences in their order, joined.",
            "sentence_count": "How many sentences the summary has; what follows is padding.",
            "sentence_text": "The sentences.",
            "sentence_number": "The number of each in the text, from 0.",
            "sentence_score": "The probability of each.",
        },
        token_outputs={"logits": "One per token; those of the [CLS] of a sentence count."},
        details={name: name for name in ("num_sentences", "trigram_blocking")},
    ),
    options={
        "num_sentences": may_lack(integer(least=1)),
        "trigram_blocking": may_lack(FLAG),
        "num_sentence_layers": may_lack(integer(least=0)),
    },
    built_with=("num_sentence_layers",),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {"oracle_labels": ".selection", "rouge_scores": "bert_tf.training.evaluation.generated_text"},
)
