"""What 8-bit integers cost in each layer, to choose the layers that stay in floating point."""

from collections.abc import Iterable

import tensorflow as tf

from bert_tf import ops
from bert_tf.compression.calibration import SeenRows, best_smoothing, observe_batches
from bert_tf.errors import UserError


def quantization_errors(backbone, batches: Iterable[dict[str, tf.Tensor]]) -> dict[str, float]:
    """Measures the error of every layer on real inputs, if only this layer were quantized.

    An error is the norm of the difference from the floating-point result, divided by the norm of
    that result. That of a dense layer is measured on up to 512 rows, with the smoothing that
    calibration would choose.

    Args:
        backbone: A `BertBackbone` with its kernels.
        batches: Token dictionaries with a few thousand tokens of text like the application's.

    Returns:
        The errors of the dense layers, by the paths that `quantize(skip=…)` takes, and those of
        quantized attention, by the path of the block and ".attention".

    Raises:
        UserError: If there is no batch, the activations are not finite, or the backbone is
            prepacked or quantized.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> errors = bert_tf.compression.quantization_errors(
        ...     backbone, [{"token_ids": tf.constant([[2, 9, 10, 3]])}]
        ... )
        >>> list(errors)[:2]
        ['blocks.0.attention.query_key_value', 'blocks.0.attention_output']
    """
    backbone.require_kernels("measured")
    layers = {dense: SeenRows() for dense in backbone.encoder.dense_layers().values()}
    attention = {block.attention: _SeenAttention() for block in backbone.encoder.blocks}

    def observe(layer, *inputs):
        if layer in layers or layer in attention:
            {**layers, **attention}[layer].add(*inputs)

    observe_batches(backbone, batches, observe)
    if not all(seen.rows for seen in layers.values()):
        raise UserError("`batches` must have at least one token. Received: none.")
    errors = {}
    for index, block in enumerate(backbone.encoder.blocks):
        for path, dense in block.dense_layers().items():
            errors[f"blocks.{index}.{path}"], _ = best_smoothing(dense, layers[dense])
        errors[f"blocks.{index}.attention"] = attention[block.attention].error()
    return errors


class _SeenAttention:
    """The squares of the norms of the results and of their errors."""

    def __init__(self):
        self._result = self._difference = 0.0

    def add(self, qkv, row_splits):
        expected = tf.cast(ops.varlen_attention(qkv, row_splits), tf.float32)
        quantized = tf.cast(ops.quantized_attention(qkv, row_splits), tf.float32)
        self._result += float(tf.reduce_sum(tf.square(expected)))
        self._difference += float(tf.reduce_sum(tf.square(quantized - expected)))

    def error(self) -> float:
        return (self._difference / self._result) ** 0.5 if self._result else 0.0
