"""Gradients of gradients and forward-mode differentiation: the reference has them, and the native
ops say so."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS

VECTOR = tf.constant([0.5, -1.0, 2.0, 0.3])
PACKED = ops.pack_dense(tf.reshape(tf.sin(tf.range(16.0)), [4, 4]))


CAUSAL = ops.AttentionRule(causal=True)


def _attention(x):
    qkv = tf.reshape(tf.concat([x, tf.sin(x), x * x], axis=1), [6, 3, 2, 2])
    return tf.reshape(ops.varlen_attention(qkv, [0, 2, 6], rule=CAUSAL), [6, 4])


def _cross_attention(x):
    query = tf.reshape(x, [6, 2, 2])
    key_value = tf.reshape(tf.concat([tf.sin(x), x * x], axis=1), [6, 2, 2, 2])
    output = ops.varlen_cross_attention(
        query, key_value, [0, 4, 6], [0, 2, 6], rule=ops.AttentionRule(causal=True)
    )
    return tf.reshape(output, [6, 4])


OPS = {
    "fused_bias_gelu": lambda x: ops.fused_bias_gelu(x, VECTOR),
    "fused_bias_gelu tanh": lambda x: ops.fused_bias_gelu(x, VECTOR, approximate=True),
    "fused_gate gelu": lambda x: ops.fused_gate(tf.concat([x, tf.sin(x)], axis=1), "gelu"),
    "fused_gate silu": lambda x: ops.fused_gate(tf.concat([x, tf.sin(x)], axis=1), "silu"),
    "fused_residual_layer_norm": lambda x: ops.fused_residual_layer_norm(
        x, tf.sin(x), VECTOR, VECTOR, VECTOR
    ),
    "fused_residual_layer_norm dropout": lambda x: ops.fused_residual_layer_norm(
        x, tf.sin(x), VECTOR, VECTOR, VECTOR, dropout_rate=0.3, seed=1
    ),
    "varlen_attention": _attention,
    "varlen_cross_attention": _cross_attention,
    "fused_dense": lambda x: ops.fused_dense(
        x, PACKED, 4, VECTOR, residual=x, gamma=VECTOR, beta=VECTOR
    ),
}
WAY_OUT = r"backend\('reference'\).*BERT_TF_OPS=reference"


def _random(seed):
    return tf.constant(np.random.default_rng(seed).normal(size=(6, 4)), tf.float32)


def _gradient(function, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x) * _random(2))
    return tape.gradient(y, x)


def _gradient_of_gradient(function, x, direction):
    """The Hessian times `direction`, by two tapes."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        slope = tf.reduce_sum(_gradient(function, x) * direction)
    return tape.gradient(slope, x)


def _forward_mode(function, x, direction):
    with tf.autodiff.ForwardAccumulator(x, direction) as accumulator:
        y = function(x)
    return accumulator.jvp(y)


@pytest.mark.parametrize("name", OPS)
def test_the_reference_has_both(name):
    function, x, direction = OPS[name], _random(0), _random(1)
    with ops.backend("reference"):
        slope = tf.reduce_sum(_forward_mode(function, x, direction) * _random(2))
        gradient = _gradient(function, x)
        hessian = _gradient_of_gradient(function, x, direction)
        step = 1e-2
        differences = (
            _gradient(function, x + step * direction) - _gradient(function, x - step * direction)
        ) / (2 * step)
    np.testing.assert_allclose(slope, tf.reduce_sum(gradient * direction), rtol=1e-4, atol=1e-4)
    scale = float(tf.reduce_max(tf.abs(hessian)))
    assert scale > 0
    np.testing.assert_allclose(hessian, differences, atol=0.02 * scale)


@pytest.mark.skipif(BACKENDS == ("reference",), reason="needs the native ops")
@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_the_native_ops_say_what_to_do(name, traced):
    function, x, direction = OPS[name], _random(0), _random(1)
    public = name.split()[0]
    for derivative in (_gradient_of_gradient, _forward_mode):
        # Without AutoGraph, which would wrap the error in another one.
        call = tf.function(derivative, autograph=False) if traced else derivative
        with ops.backend("native"), pytest.raises(LookupError, match=f"`{public}`.*{WAY_OUT}"):
            call(function, x, direction)
