"""Masked language models: which pieces replace `[MASK]`."""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.models.task_spec import TOKEN_AXIS, WORD_AXIS, Head, TaskInput, TaskSpec
from bert_tf.models.weight_rows import DENSE, LAYER_NORM, VECTOR, Row

HEAD = Head(
    "masked_lm",
    (
        Row(
            DENSE,
            "transform",
            "cls.predictions.transform.dense",
            "cls/predictions/transform/dense",
            "task/masked_lm_head/_intermediate_dense",
            "masked_lm/dense",
        ),
        Row(
            LAYER_NORM,
            "layer_norm",
            "cls.predictions.transform.LayerNorm",
            "cls/predictions/transform/LayerNorm",
            "task/masked_lm_head/_intermediate_layer_norm",
            "masked_lm/layer_norm",
        ),
        Row(
            VECTOR,
            "output_bias",
            "cls.predictions.bias|cls.predictions.decoder.bias",
            "cls/predictions/output_bias",
            "task/masked_lm_head/vars/0",
            "masked_lm/bias|masked_lm/output_bias/bias",
        ),
    ),
)
SPEC = TaskSpec(
    name="masked_lm",
    model="BertMaskedLM",
    architectures=("BertForMaskedLM",),
    inputs=dict.fromkeys(("masked_positions", "target_ids"), TaskInput("int32", (None,))),
    heads={"masked_lm_head": HEAD},
    uses_pooler=False,
    serving="MaskedLMModule",
    output_axes=(TOKEN_AXIS, WORD_AXIS),
)

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"FilledMask": ".preprocessor", "mask_texts": ".masked_text"}
)
