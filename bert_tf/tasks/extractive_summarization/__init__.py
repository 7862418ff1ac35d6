"""Extractive summarization: the sentences of a document that are its summary."""

from bert_tf.base.json_schema import FLAG, integer, may_lack
from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import Head, TaskSpec, layer_head
from bert_tf.models.weight_rows import ENCODER_BLOCK, OUTPUT, Row

_HEAD = layer_head("sentence_scorer", OUTPUT, "sentence_scorer", "sentence_scorer")


def _sentence_layer_row(kind: str, ours: str, theirs: str) -> Row:
    """Returns a layer of every block between sentences. The names in files are our own."""
    name = f"sentence_layers.{{index}}.{theirs}"
    return Row(kind, ours, name, name.replace(".", "/"))


_SENTENCE_LAYERS = Head(
    "sentence_layers",
    rows=(),
    block_rows=tuple(_sentence_layer_row(*layer) for layer in ENCODER_BLOCK),
)
SPEC = TaskSpec(
    name="extractive_summarization",
    model="BertSentenceExtractor",
    architectures=("BertForExtractiveSummarization",),  # transformers has no such class
    heads={"scorer": _HEAD},
    optional_heads={"sentence_layers": _SENTENCE_LAYERS},
    uses_pooler=False,
    serving="ExtractiveSummarizationModule",
    options={
        "num_sentences": may_lack(integer(least=1)),
        "trigram_blocking": may_lack(FLAG),
        "num_sentence_layers": may_lack(integer(least=0)),
    },
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"oracle_labels": ".oracle", "rouge_scores": "bert_tf.training.evaluation.rouge"}
)
