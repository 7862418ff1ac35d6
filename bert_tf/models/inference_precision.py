"""The precision in which a model computes for inference: one switch for what there is."""

import logging
from typing import Any

from bert_tf.errors import UserError
from bert_tf.layers.quantization import BFLOAT16, INT8
from bert_tf.ops.processor import has_bfloat16_products

AUTO = "auto"
FLOAT32 = "float32"
PRECISIONS = (AUTO, FLOAT32, BFLOAT16, INT8)

_logger = logging.getLogger("bert_tf")


def optimize_for_inference(model: Any, precision: str, quantization: dict[str, Any]) -> str:
    """Does what `BertBackbone.optimize_for_inference` does, for a backbone or a model with one."""
    if precision not in PRECISIONS:
        raise UserError(f"`precision` must be one of {PRECISIONS}. Received: {precision=}")
    if quantization and precision != INT8:
        raise UserError(
            f"`precision` must be 'int8' with the argument `{next(iter(quantization))}`. "
            f"Received: {precision=}"
        )
    backbone = getattr(model, "backbone", model)
    backbone.require_native_ops("optimized for inference")
    if precision == AUTO:
        precision = BFLOAT16 if has_bfloat16_products() else FLOAT32
        has = "has" if precision == BFLOAT16 else "does not have"
        _logger.info("The model computes in %s: the processor %s AVX512-BF16.", precision, has)
    if precision == INT8:
        model.quantize(INT8, **quantization)
    model.prepack_for_inference(BFLOAT16 if precision == BFLOAT16 else None)
    return precision
