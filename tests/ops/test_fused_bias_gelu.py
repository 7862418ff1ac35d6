"""fused_bias_gelu, native and reference, in its tails and beyond. What every op must do is in
tests/conformance/test_ops.py.

Accuracy over all exponents, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/gelu/fused_bias_gelu_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.gelu_float64 import gelu, gelu_slope

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
pytestmark = pytest.mark.parametrize("approximate", [False, True], ids=["erf", "tanh"])


def test_float64_slope_is_the_derivative(approximate):
    s = np.linspace(-8.0, 8.0, 401)
    step = 1e-5
    difference = (gelu(s + step, approximate) - gelu(s - step, approximate)) / (2 * step)
    np.testing.assert_allclose(gelu_slope(s, approximate), difference, atol=1e-9)


@on_every_backend
def test_eight_ulp_over_the_negative_tail(backend, approximate):
    # From where on the results are subnormal; TensorFlow's erfc is flushed to zero before.
    lowest = 10.0 if approximate else 13.0 if backend == "native" else 12.5
    s = -np.geomspace(1e-3, lowest, 200_001).astype(np.float32)
    with ops.backend(backend):
        y = ops.fused_bias_gelu(s, np.zeros(s.shape, np.float32), approximate).numpy()
    expected = gelu(s, approximate)
    normal = np.abs(expected) > 2.0**-125
    ulps = np.abs(y - expected)[normal] / np.spacing(np.abs(expected[normal]).astype(np.float32))
    # The reference rounds the exponential's argument to float32: 8 ulp where that is small.
    assert ulps.max() <= 8.0 if backend == "native" else ulps.max() <= 300.0


@on_every_backend
def test_infinities_nan_and_huge_values(backend, approximate):
    s = np.array([np.inf, -np.inf, np.nan, 3e38, -3e38, 0.0], np.float32)
    with ops.backend(backend), tf.GradientTape() as tape:
        x = tf.constant(s)
        tape.watch(x)
        y = ops.fused_bias_gelu(x, tf.zeros([6]), approximate)
    dx = tape.gradient(y, x)
    np.testing.assert_array_equal(y, np.array([np.inf, 0, np.nan, 3e38, 0, 0], np.float32))
    np.testing.assert_array_equal(dx, [1.0, 0.0, np.nan, 1.0, 0.0, 0.5])
