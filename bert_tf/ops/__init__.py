"""The custom ops: one file per op, together with its reference implementation in stock TensorFlow.

`native.py` decides which of the two runs (`BERT_TF_OPS`, `backend()`).
"""

from bert_tf.ops.adam_weight_decay import adam_weight_decay, adam_weight_decay_reference
from bert_tf.ops.attention_rule import AttentionRule
from bert_tf.ops.feed_forward import (
    fused_feed_forward,
    fused_feed_forward_reference,
    quantized_feed_forward,
    quantized_feed_forward_reference,
)
from bert_tf.ops.fused_bias_gelu import (
    fused_bias_gelu,
    fused_bias_gelu_reference,
    tflite_compatible,
)
from bert_tf.ops.fused_dense import (
    fused_dense,
    fused_dense_reference,
    pack_dense,
    pack_dense_reference,
    unpack_dense,
)
from bert_tf.ops.fused_gate import fused_gate, fused_gate_reference
from bert_tf.ops.fused_residual_layer_norm import (
    fused_residual_layer_norm,
    fused_residual_layer_norm_reference,
)
from bert_tf.ops.native import active_backend, backend, describe, library
from bert_tf.ops.philox import philox_uniform_bits
from bert_tf.ops.quantized_attention import quantized_attention, quantized_attention_reference
from bert_tf.ops.quantized_dense import (
    QuantizedKernel,
    pack_quantized_dense,
    quantize_kernel,
    quantized_dense,
    quantized_dense_reference,
    unpack_quantized_dense,
)
from bert_tf.ops.varlen_attention import (
    varlen_attention,
    varlen_attention_reference,
    varlen_cross_attention,
    varlen_cross_attention_reference,
)

__all__ = [
    "AttentionRule",
    "QuantizedKernel",
    "active_backend",
    "adam_weight_decay",
    "adam_weight_decay_reference",
    "backend",
    "describe",
    "fused_bias_gelu",
    "fused_bias_gelu_reference",
    "fused_dense",
    "fused_dense_reference",
    "fused_feed_forward",
    "fused_feed_forward_reference",
    "fused_gate",
    "fused_gate_reference",
    "fused_residual_layer_norm",
    "fused_residual_layer_norm_reference",
    "library",
    "pack_dense",
    "pack_dense_reference",
    "pack_quantized_dense",
    "philox_uniform_bits",
    "quantize_kernel",
    "quantized_attention",
    "quantized_attention_reference",
    "quantized_dense",
    "quantized_dense_reference",
    "quantized_feed_forward",
    "quantized_feed_forward_reference",
    "tflite_compatible",
    "unpack_dense",
    "unpack_quantized_dense",
    "varlen_attention",
    "varlen_attention_reference",
    "varlen_cross_attention",
    "varlen_cross_attention_reference",
]
