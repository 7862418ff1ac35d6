"""fused_gate, native and reference, in its tails and beyond. What every op must do is in
tests/conformance/test_ops.py.

Accuracy over all exponents, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/dense/fused_gate_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.gelu_float64 import gelu, silu, silu_slope

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
every_activation = pytest.mark.parametrize("activation", ["gelu", "gelu_new", "silu"])


def test_float64_slope_is_the_derivative():
    s, step = np.linspace(-8.0, 8.0, 401), 1e-5
    difference = (silu(s + step) - silu(s - step)) / (2 * step)
    np.testing.assert_allclose(silu_slope(s), difference, atol=1e-9)


@on_every_backend
@every_activation
def test_the_negative_tail(backend, activation):
    # From where on the results are subnormal; TensorFlow's functions are flushed to zero before.
    lowest = {"gelu": 12.5, "gelu_new": 10.0, "silu": 87.0}[activation]
    s = -np.geomspace(1e-3, lowest, 200_001).astype(np.float32)
    with ops.backend(backend):
        y = ops.fused_gate(np.concatenate([s, np.full_like(s, 3.0)]), activation).numpy()
    expected = 3.0 * (silu(s) if activation == "silu" else gelu(s, activation == "gelu_new"))
    normal = np.abs(expected) > 2.0**-124
    ulps = np.abs(y - expected)[normal] / np.spacing(np.abs(expected[normal]).astype(np.float32))
    # The reference rounds the exponential's argument to float32: 8 ulp where that is small.
    assert ulps.max() <= 9.0 if backend == "native" else ulps.max() <= 300.0


@on_every_backend
@every_activation
def test_infinities_nan_and_huge_values(backend, activation):
    s = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0, 1.0, -np.inf], np.float32)
    factor = np.array([1, 1, 1, 1, 1, 1, np.nan, np.inf], np.float32)
    with ops.backend(backend), tf.GradientTape() as tape:
        x = tf.constant(np.concatenate([s, factor]))
        tape.watch(x)
        y = ops.fused_gate(x, activation)
    dx = tape.gradient(y, x)
    np.testing.assert_array_equal(y, np.array([np.inf, 0, np.nan, 3e38, 0, 0, np.nan, np.nan], "f"))
    np.testing.assert_array_equal(dx[:7], [1.0, 0.0, np.nan, 1.0, 0.0, 0.5, np.nan])
    np.testing.assert_array_equal(dx[8:14], np.array([np.inf, 0, np.nan, 3e38, 0, 0], "f"))


@on_every_backend
def test_errors_say_what_was_expected_and_received(backend):
    with ops.backend(backend):
        with pytest.raises(ValueError, match=r"`activation` must be .*Received: activation='relu'"):
            ops.fused_gate(tf.zeros([2, 4]), "relu")
        with pytest.raises(ValueError, match=r"even number of columns. Received: x.shape=\(2, 5\)"):
            ops.fused_gate(tf.zeros([2, 5]), "silu")
