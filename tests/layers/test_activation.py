"""The table of activations."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.activation import ACTIVATIONS
from tests import numpy_bert


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name):
    activation, expected = ACTIVATIONS[name], numpy_bert.ACTIVATIONS[name]
    x = np.linspace(-4, 4, 32, dtype=np.float32).reshape(2, 16)
    bias = np.linspace(0, 1, 16, dtype=np.float32)
    np.testing.assert_allclose(activation.function(tf.constant(x)), expected(x), atol=1e-6)
    if activation.with_bias is not None:
        y = activation.with_bias(tf.constant(x), tf.constant(bias))
        np.testing.assert_allclose(y, expected(x + bias), atol=1e-6)
