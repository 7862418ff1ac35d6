"""Masked language models: which pieces replace `[MASK]`."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models import task_spec
from bert_tf.models.weight_rows import DENSE, LAYER_NORM, TABLE, VECTOR, Row, layer_row

_TRANSFORM = "cls.predictions.transform"
_KERAS_HUB = "task/masked_lm_head"
_DENSE_NAMES = (f"{_TRANSFORM}.dense", f"{_KERAS_HUB}/_intermediate_dense", "masked_lm/dense")
_NORM_NAMES = (
    *(f"{_TRANSFORM}.LayerNorm", f"{_KERAS_HUB}/_intermediate_layer_norm"),
    "masked_lm/layer_norm",
)
HEAD = task_spec.Head(
    "masked_lm",
    (
        layer_row(DENSE, "transform", *_DENSE_NAMES),
        layer_row(LAYER_NORM, "layer_norm", *_NORM_NAMES),
        Row(TABLE, "output_embeddings", "cls.predictions.decoder", None),
        Row(
            VECTOR,
            "output_bias",
            "cls.predictions.bias|cls.predictions.decoder.bias",
            "cls/predictions/output_bias",
            f"{_KERAS_HUB}/vars/0",
            "masked_lm/bias|masked_lm/output_bias/bias",
        ),
    ),
)
LABELS = task_spec.Labels(
    are_required=True,
    are_in_texts=True,
    no_class_weights="labels are words; `masked_weights` weights them",
)
SPEC = task_spec.TaskSpec(
    name="masked_lm",
    model="BertMaskedLM",
    architectures=("BertForMaskedLM",),
    decoded_by="fill_mask",
    preprocessor="MaskedLMPreprocessor",
    examples=task_spec.Examples(are_predicted_in_datasets=False),
    labels=LABELS,
    inputs={
        "masked_positions": task_spec.TaskInput("int32", (None,), sample=0),
        "target_ids": task_spec.TaskInput("int32", (None,)),
    },
    backbone_options={"output_word_embeddings": True},
    heads={"masked_lm_head": HEAD},
    uses_pooler=False,
    serving=task_spec.Serving(
        "preprocessor.MaskedLMModule",
        outputs={
            "mask_count": "How many masks the text has before it is cut.",
            "piece": "The most probable pieces for each mask, the best first.",
            "probability": "Their probabilities.",
        },
        token_outputs={"logits": "One per piece of the vocabulary and token."},
        samples=({"text": ["It is a good [MASK]."]}, {"text": ["[MASK] is good.", "A [MASK]."]}),
    ),
    output_axes=(task_spec.TOKEN_AXIS, task_spec.WORD_AXIS),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"FilledMask": ".preprocessor", "mask_texts": ".preprocessor"}
)
