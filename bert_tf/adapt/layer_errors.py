"""What 8-bit integers cost in each layer, to choose the layers that stay in floating point."""

import dataclasses
from collections.abc import Iterable

import tensorflow as tf

from bert_tf import ops
from bert_tf.adapt.calibration import SeenRows, best_scaling, observed_inputs
from bert_tf.errors import UserError
from bert_tf.layers.quantization import DYNAMIC


def quantization_errors(
    backbone, batches: Iterable[dict[str, tf.Tensor]], activations: str = DYNAMIC
) -> dict[str, float]:
    """Measures the error of every layer on real inputs, if only this layer were quantized.

    An error is the norm of the difference from the floating-point result, divided by the norm of
    that result. That of a dense layer is measured on up to 512 rows, with the scaling that
    calibration would choose.

    Args:
        backbone: A `BertBackbone` with its kernels.
        batches: Token dictionaries with a few thousand tokens of text like the application's.
        activations: "dynamic" or "static", as in `bert_tf.layers.Quantization`.

    Returns:
        The errors of the dense layers and of quantized attention, by the paths that
        `quantize(skip=…)` takes.

    Raises:
        UserError: If there is no batch, the activations are not finite, or the backbone has LoRA
            or is prepacked or quantized.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> errors = bert_tf.adapt.quantization_errors(
        ...     backbone, [{"token_ids": tf.constant([[2, 9, 10, 3]])}]
        ... )
        >>> list(errors)[:2]
        ['blocks.0.attention.query_key_value', 'blocks.0.attention_output']
    """
    backbone.require_kernels("measured")
    backbone.require_merged("measured")
    dense = backbone.encoder.dense_layers()
    scores = backbone.encoder.attention_layers()
    seen = {layer: SeenRows() for layer in dense.values()}
    attention = {layer: _SeenAttention() for layer in scores.values()}

    def observe(layer, *inputs):
        attention[layer].add(*inputs)

    with observed_inputs(backbone, seen):
        for batch in batches:
            backbone(batch, observe=observe)
    if not all(seen[layer].rows for layer in dense.values()):
        raise UserError("`batches` must have at least one token. Received: none.")
    errors = {
        path: best_scaling(layer, seen[layer], activations)[0] for path, layer in dense.items()
    }
    return {**errors, **{path: attention[layer].error() for path, layer in scores.items()}}


class _SeenAttention:
    """The squares of the norms of the results and of their errors."""

    def __init__(self):
        self._result = self._difference = 0.0

    def add(self, qkv, layout, rule):
        qkv = tf.cast(qkv, tf.float32)
        if rule.distance_bias is not None:
            rule = dataclasses.replace(rule, distance_bias=tf.cast(rule.distance_bias, tf.float32))
        expected = ops.varlen_attention(qkv, layout.row_splits, rule=rule)
        quantized = ops.quantized_attention(qkv, layout.row_splits, rule)
        self._result += float(tf.reduce_sum(tf.square(expected)))
        self._difference += float(tf.reduce_sum(tf.square(quantized - expected)))

    def error(self) -> float:
        return (self._difference / self._result) ** 0.5 if self._result else 0.0
