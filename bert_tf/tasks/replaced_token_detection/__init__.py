"""Replaced token detection: which tokens of a text were there at first? ELECTRA's pre-training."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import TOKEN_AXIS, TaskSpec, layer_head
from bert_tf.models.weight_rows import DENSE

_SCOPE = "discriminator_predictions"
_TRANSFORM = (f"{_SCOPE}.dense", f"{_SCOPE}/dense")
_DETECTOR = (f"{_SCOPE}.dense_prediction", f"{_SCOPE}/dense_1")
SPEC = TaskSpec(
    name="replaced_token_detection",
    model="BertReplacedTokenDetector",
    # `transformers` has no such class for BERT; for ELECTRA it is ElectraForPreTraining.
    architectures=("BertForReplacedTokenDetection",),
    heads={
        "transform": layer_head("replaced_tokens_transform", DENSE, *_TRANSFORM),
        "detector": layer_head("replaced_tokens", DENSE, *_DETECTOR),
    },
    uses_pooler=False,
    serving="ReplacedTokenDetectionModule",
    output_axes=(TOKEN_AXIS,),
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"ScoredPiece": ".preprocessor"})
