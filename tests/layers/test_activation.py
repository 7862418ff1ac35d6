"""bias_activation: every activation of BertConfig."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.activation import bias_activation

FUNCTIONS = {
    "gelu": lambda x: keras.ops.gelu(x, approximate=False),
    "gelu_new": lambda x: keras.ops.gelu(x, approximate=True),
    "relu": keras.ops.relu,
    "silu": keras.ops.silu,
}


@pytest.mark.parametrize("activation", FUNCTIONS)
def test_activation(activation):
    x = np.linspace(-4, 4, 32, dtype=np.float32).reshape(2, 16)
    bias = np.linspace(0, 1, 16, dtype=np.float32)
    np.testing.assert_allclose(
        bias_activation(tf.constant(x), tf.constant(bias), activation),
        FUNCTIONS[activation](x + bias),
        atol=1e-6,
    )
