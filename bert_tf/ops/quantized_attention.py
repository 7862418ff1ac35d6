"""`varlen_attention` in 8-bit integers, for inference on a CPU.

Queries, keys and values are quantized when the op runs, so no calibration is needed: a query with
one scale and one zero point per head, a key with one scale per head after the mean of the keys of
its sequence was subtracted, the values with one scale per feature and sequence. The softmax weights
are bytes too. `custom_ops/kernels/attention/quantized_attention.h` has the formulas.

Reference: SageAttention (Zhang et al., arXiv 2410.02367), sections 4.2 and 4.3.
"""

import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.attention_rule import EVERY_TOKEN, AttentionRule, PaddedAttention
from bert_tf.ops.native import refuse_gradient, self_attention_tensors
from bert_tf.ops.quantized_dense import MAX_DEPTH, SMALLEST_SPAN, quantized_rows

MAX_QUANTIZED_LENGTH = 65536  # kQuantizedAttentionLength

_LARGEST_INTEGER = 127.0  # of keys and values
_LARGEST_WEIGHT = 255.0


def quantized_attention(
    qkv: tf.Tensor, row_splits: tf.Tensor, rule: AttentionRule = EVERY_TOKEN
) -> tf.Tensor:
    """Computes `varlen_attention` in 8-bit integers, without dropout.

    On ordinary activations, the result differs from that of `varlen_attention` by about 1 % of its
    norm. It does not depend on the number of threads or on the other sequences. On a processor
    without AVX-512 VNNI, or for sequences of fewer than about 50 tokens, `varlen_attention` is
    faster.

    A query that is not finite gives NaN in its own row. A key or a value that is not finite gives
    NaN in all rows of its sequence and head, even where a mask hides it. So do keys whose sum is
    beyond float32's range, and a distance bias that is not finite in its head.

    Args:
        qkv: `[R, 3, N, D]`, float32, bfloat16 or float16, as in `varlen_attention`.
        row_splits: `[B + 1]`, int32 or int64, as in `varlen_attention`. A sequence has at most
            65,536 tokens.
        rule: The `AttentionRule`, as in `varlen_attention`, without `attended_rows` and
            `attended_blocks`.

    Returns:
        `[R, N, D]` with the dtype of `qkv`.

    Raises:
        TypeError: If the dtype of `qkv`, `row_splits` or the distance bias is not supported.
        ValueError, tf.errors.InvalidArgumentError: If shapes do not match; `row_splits` does not
            begin with 0, does not end with R, or decreases; a sequence is too long; or the rule has
            `attended_rows` or `attended_blocks`.
        LookupError: If a gradient is asked for: rounding has none.

    Example:
        >>> qkv = tf.random.normal([5, 3, 2, 8])  # a sequence of three tokens and one of two
        >>> bert_tf.ops.quantized_attention(qkv, row_splits=[0, 3, 5]).shape
        TensorShape([5, 2, 8])

    Reference: SageAttention, arXiv 2410.02367.
    """
    qkv, row_splits, distance_bias = self_attention_tensors(qkv, row_splits, rule)
    for name in ("attended_rows", "attended_blocks", "distance_vectors"):
        if (tensor := getattr(rule, name)) is not None:
            raise ValueError(
                f"`rule.{name}` must be None: only `varlen_attention` supports it. "
                f"Received: rule.{name}.shape={tensor.shape}"
            )
    head_size = qkv.shape[-1]
    if head_size is not None and head_size > MAX_DEPTH:
        raise ValueError(
            f"`qkv` must have a head size of at most {MAX_DEPTH}, so that int32 can hold the sums. "
            f"Received: qkv.shape={qkv.shape}"
        )
    library = native.used_library(runs_on_gpu=False)
    if library is None:
        return _reference(PaddedAttention.of_self(qkv, row_splits, rule))
    qkv, rule = rule.rotate_packed(qkv, row_splits)
    return library.bert_tf_quantized_attention(qkv, row_splits, distance_bias, **rule.attributes)


quantized_attention_reference = native.reference_of(
    quantized_attention,
    """It runs on any device. It pads to the longest sequence, needs `[B, N, T, T]` tensors, and is
    not faster than `varlen_attention_reference`. Where the native op and this one compute an
    exponential with different last bits, a softmax weight can differ by 1 / 255.""",
)


def _symmetric(x, axis) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns integers in [-127, 127] with the shape of x, and their scales along `axis`."""
    largest = tf.reduce_max(tf.abs(x), axis=axis, keepdims=True)
    counts = largest >= SMALLEST_SPAN
    inverse = tf.where(counts, _LARGEST_INTEGER / tf.where(counts, largest, 1.0), 0.0)
    return tf.round(x * inverse), tf.where(counts, largest / _LARGEST_INTEGER, 0.0)


def _reference(padded: PaddedAttention) -> tf.Tensor:
    tf.debugging.assert_less_equal(
        padded.keys.lengths,
        tf.constant(MAX_QUANTIZED_LENGTH, tf.int64),
        f"A sequence must have at most {MAX_QUANTIZED_LENGTH} tokens.",
    )
    shape = tf.shape(padded.query)  # [B, T, N, D]
    u, query_scale, zero = quantized_rows(tf.reshape(padded.query, [-1, shape[3]]))
    query = tf.reshape(u - zero, shape)
    query_scale = tf.reshape(query_scale * padded.score_scale, shape[:3])  # [B, T, N]

    counts = tf.cast(tf.maximum(padded.keys.lengths, 1), tf.float32)[:, tf.newaxis, tf.newaxis]
    mean = tf.reduce_sum(padded.key, axis=1) * (1.0 / counts)  # [B, N, D]
    is_token = padded.keys.is_token[:, :, tf.newaxis, tf.newaxis]
    centered = tf.where(is_token, padded.key - mean[:, tf.newaxis], 0.0)
    key, key_scale = _symmetric(centered, axis=3)  # [B, T, N, D], [B, T, N, 1]
    value, value_scale = _symmetric(padded.value, axis=1)  # [B, T, N, D], [B, 1, N, D]

    scores = tf.einsum("bqnd,bknd->bnqk", query, key)  # [B, N, T, T]
    scores *= tf.transpose(key_scale, [0, 2, 3, 1])  # [B, T, N, 1] -> [B, N, 1, T]
    scores *= tf.transpose(query_scale, [0, 2, 1])[..., tf.newaxis]  # [B, T, N] -> [B, N, T, 1]
    scores = padded.add_bias(scores)
    scores = tf.where(padded.sees, scores, -float("inf"))
    scores -= tf.reduce_max(scores, axis=-1, keepdims=True)
    weights = tf.round(_LARGEST_WEIGHT * tf.exp(scores))
    weights /= tf.reduce_sum(weights, axis=-1, keepdims=True)
    output = tf.einsum("bnqk,bknd->bqnd", weights, value) * value_scale  # [B, T, N, D]
    zero_or_nan = tf.reduce_sum(0.0 * padded.key + 0.0 * padded.value, axis=[1, 3], keepdims=True)
    if padded.rule.distance_bias is not None:
        zero_or_nan += tf.reduce_sum(0.0 * padded.rule.distance_bias, axis=1)[:, tf.newaxis]
    return padded.queries.pack(output + zero_or_nan)


refuse_gradient(
    "BertTf>QuantizedAttention", "quantized_attention", native.INTEGERS_HAVE_NO_GRADIENT
)
