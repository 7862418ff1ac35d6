"""The convolution of DeBERTa-v2 in every layout, compared with `numpy.convolve`."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.encoder_block import TokenConvolution

CONFIG = BertConfig(
    hidden_size=4, num_attention_heads=2, conv_kernel_size=5, conv_act="relu", layer_norm_eps=1e-5
)
MASK = np.array([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 1]], bool)
LAYOUTS = {
    "padded": TokenLayout.padded,
    "packed": TokenLayout.packed,
    "packed in place": TokenLayout.packed_in_place,
}


def expected(x, kernel):
    """x `[B, T, H]`, kernel `[k, H, H]`; the tokens of a row are next to each other."""
    y = np.zeros_like(x)
    for row, mask in enumerate(MASK):
        tokens = x[row, mask]
        sums = [
            sum(np.convolve(tokens[:, i], kernel[::-1, i, o])[2:-2] for i in range(4))
            for o in range(4)
        ]
        total = tokens + np.maximum(np.stack(sums, axis=1), 0)
        centred = total - total.mean(axis=1, keepdims=True)
        y[row, mask] = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    return y


# XLA needs static shapes.
@pytest.mark.parametrize(
    "name, compiled",
    [*((name, False) for name in LAYOUTS), ("padded", True), ("packed in place", True)],
)
def test_it_sees_the_tokens_of_its_sequence_only(name, compiled):
    generator = np.random.default_rng(0)
    x = generator.normal(size=[*MASK.shape, 4])
    kernel = generator.normal(size=[5, 4, 4])
    layer = TokenConvolution(CONFIG)
    layer.build()
    layer.dense.kernel.assign(kernel.reshape(20, 4))

    @tf.function(autograph=False, jit_compile=compiled)
    def compute(x, mask):
        layout = LAYOUTS[name](mask)
        rows = layout.to_rows(x)
        return layout.to_batch(layer(rows, layout=layout, residual=rows))

    # What is at padding has no influence.
    padded = np.where(MASK[..., np.newaxis], x, np.nan).astype(np.float32)
    received = compute(tf.constant(padded), tf.constant(MASK)).numpy()
    np.testing.assert_allclose(received[MASK], expected(x, kernel)[MASK], atol=1e-5)


def test_dropout_has_a_seed():
    layer = TokenConvolution(CONFIG)
    rows = tf.random.stateless_normal([64, 4], [1, 2])
    layout = TokenLayout.packed(tf.ones([4, 16], tf.bool))
    one, same, other, none = (
        layer(rows, layout=layout, residual=rows, training=seed is not None, dropout_seed=seed)
        for seed in (*map(np.int64, (1, 1, 2)), None)
    )
    np.testing.assert_array_equal(one, same)
    assert np.abs(one - other).max() > 0 and np.abs(one - none).max() > 0
