"""Replaced token detection: which tokens of a text were there at first? ELECTRA's pre-training."""

from bert_tf.lazy_names import lazy_names
from bert_tf.models.task_spec import Head, TaskSpec
from bert_tf.models.weight_rows import DENSE, Row


def _row(ours: str, huggingface: str, tf1: str) -> Row:
    scope = "discriminator_predictions"
    return Row(DENSE, ours, f"{scope}.{huggingface}", f"{scope}/{tf1}", None, None)


_HEAD = Head(
    "replaced_tokens",
    (_row("transform", "dense", "dense"), _row("out", "dense_prediction", "dense_1")),
)
SPEC = TaskSpec(
    name="replaced_token_detection",
    model="BertReplacedTokenDetector",
    # `transformers` has no such class for BERT; for ELECTRA it is ElectraForPreTraining.
    architectures=("BertForReplacedTokenDetection",),
    heads={"detector": _HEAD},
    uses_pooler=False,
    serving="ReplacedTokenDetectionModule",
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"ScoredPiece": ".preprocessor"})
