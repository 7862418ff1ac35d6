"""Replaced token detection: which tokens of a text were there at first? ELECTRA's pre-training."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import TOKEN_AXIS, Examples, Labels, Serving, TaskSpec, layer_head
from bert_tf.models.weight_rows import DENSE, LAYER_NORM

_SCOPE = "discriminator_predictions"
_TRANSFORM = (f"{_SCOPE}.dense", f"{_SCOPE}/dense")
_DETECTOR = (f"{_SCOPE}.dense_prediction", f"{_SCOPE}/dense_1")
_NORM = (f"{_SCOPE}.LayerNorm", None)
SPEC = TaskSpec(
    name="replaced_token_detection",
    model="BertReplacedTokenDetector",
    # `transformers` has no such class for BERT; for ELECTRA it is ElectraForPreTraining.
    architectures=("BertForReplacedTokenDetection",),
    preprocessor="ReplacedTokenPreprocessor",
    examples=Examples(texts=(1,), form="A text is a string."),
    labels=Labels(are_required=True, no_class_weights="an example has several labels"),
    token_axis=1,
    heads={
        "transform": layer_head("replaced_tokens_transform", DENSE, *_TRANSFORM),
        "detector": layer_head("replaced_tokens", DENSE, *_DETECTOR),
    },
    optional_heads={"norm": layer_head("replaced_tokens_norm", LAYER_NORM, *_NORM)},
    uses_pooler=False,
    serving=Serving(
        "preprocessor.ReplacedTokenDetectionModule",
        outputs={
            "piece_count": "How many pieces the text has after it is cut; what follows is padding.",
            "piece": "The pieces.",
            "piece_start": "The first character of each in the text, in code points.",
            "piece_end": "The one after its last.",
            "probability": "The probability that the piece has replaced another one.",
        },
        token_outputs={"logits": "One per token: above 0 where it has replaced another one."},
    ),
    output_axes=(TOKEN_AXIS,),
)

__getattr__, __dir__, __all__ = lazy_names(__name__, {"ScoredPiece": ".preprocessor"})
