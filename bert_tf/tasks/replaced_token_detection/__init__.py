"""Replaced token detection: which tokens of a text were there at first? ELECTRA's pre-training."""

from bert_tf.lazy_names import lazy_names
from bert_tf.models.task_spec import TOKEN_AXIS, Head, TaskSpec
from bert_tf.models.weight_rows import DENSE, Row


def _layer(name: str, huggingface: str, tf1: str) -> Head:
    scope = "discriminator_predictions"
    row = Row(DENSE, "", f"{scope}.{huggingface}", f"{scope}/{tf1}", None, None)
    return Head(name, (row,))


SPEC = TaskSpec(
    name="replaced_token_detection",
    model="BertReplacedTokenDetector",
    # `transformers` has no such class for BERT; for ELECTRA it is ElectraForPreTraining.
    architectures=("BertForReplacedTokenDetection",),
    heads={
        "transform": _layer("replaced_tokens_transform", "dense", "dense"),
        "detector": _layer("replaced_tokens", "dense_prediction", "dense_1"),
    },
    uses_pooler=False,
    serving="ReplacedTokenDetectionModule",
    output_axes=(TOKEN_AXIS,),
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"ScoredPiece": ".preprocessor"})
