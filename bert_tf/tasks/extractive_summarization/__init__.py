"""Extractive summarization: the sentences of a document that are its summary."""

from bert_tf.json_schema import FLAG, integer, may_lack
from bert_tf.lazy_names import lazy_names
from bert_tf.models.task_spec import Head, TaskSpec
from bert_tf.models.weight_rows import OUTPUT, Row

_HEAD = Head(
    "sentence_scorer", (Row(OUTPUT, "", "sentence_scorer", "sentence_scorer", None, None),)
)
SPEC = TaskSpec(
    name="extractive_summarization",
    model="BertSentenceExtractor",
    architectures=("BertForExtractiveSummarization",),  # transformers has no such class
    heads={"scorer": _HEAD},
    uses_pooler=False,
    serving="ExtractiveSummarizationModule",
    options={"num_sentences": may_lack(integer(least=1)), "trigram_blocking": may_lack(FLAG)},
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"oracle_labels": ".oracle", "rouge_scores": ".metrics"}
)
