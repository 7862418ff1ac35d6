"""BertEncoderBlock: attention and feed-forward with their residuals and LayerNorms."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.families.file_values import ACTIVATION_NAMES
from bert_tf.layers import BertEncoderBlock
from bert_tf.layers.attention.self_attention import AttentionProbes
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.ops import AttentionRule
from tests.layers import float64
from tests.numpy_bert import ACTIVATIONS

HIDDEN, HEADS, SIZE, WIDE = 15, 3, 5, 13
LAYOUTS = {
    "padded": TokenLayout.padded,
    "packed": TokenLayout.packed,
    "packed in place": TokenLayout.packed_in_place,
}
MASK = np.array([[1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 1, 1]], bool)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def made(num_heads=None, dtype=None, **options):
    sizes = dict(hidden_size=HIDDEN, num_attention_heads=HEADS, intermediate_size=WIDE)
    dropout = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    config = BertConfig(vocab_size=8, **{**sizes, **dropout, **options})
    layer = BertEncoderBlock(config, num_heads, dtype=dtype)
    layer.build([None, HIDDEN])
    float64.randomize(layer)
    return layer


def formula(weights, x, activation, heads=HEADS):
    """The block of a batch `[B, T, H]`, with zeros for padding."""

    def dense(x, name):
        return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]

    def norm(x, name):
        return float64.layer_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"])

    y = np.zeros_like(x)
    for row, mask in enumerate(MASK):
        if mask.any():
            rows, allowed = x[row, mask], np.ones([mask.sum()] * 2, bool)
            qkv = dense(rows, "attention/query_key_value")
            attended = dense(float64.attention(qkv, heads, allowed)[0], "attention_output")
            rows = norm(rows + attended, "attention_layer_norm")
            wide = ACTIVATIONS[activation](dense(rows, "intermediate"))
            y[row, mask] = norm(rows + dense(wide, "output_dense"), "output_layer_norm")
    return y


def inputs():
    return np.random.default_rng(0).normal(size=[*MASK.shape, HIDDEN])


def call(layer, layout, x, **options):
    return layout.to_batch(layer(layout.to_rows(x), layout=layout, **options))


@pytest.mark.parametrize("activation", sorted(set(ACTIVATION_NAMES.values())))
@every_layout
def test_rows_and_gradients(layout, activation):
    layer, layout = made(hidden_act=activation), layout(tf.constant(MASK))
    float64.assert_right(
        layer, lambda x: call(layer, layout, x), formula, [inputs()], activation=activation
    )


def test_fewer_heads():
    layer, layout = made(num_heads=2), TokenLayout.packed(tf.constant(MASK))
    float64.assert_right(
        layer, lambda x: call(layer, layout, x), formula, [inputs()], activation="gelu", heads=2
    )
    assert layer.attention_output.kernel.shape == (2 * SIZE, HIDDEN)


def test_heads_that_are_removed_are_heads_of_factor_0():
    layer, layout = made(), TokenLayout.packed(tf.constant(MASK))
    x = tf.constant(inputs(), tf.float32)
    factors = tf.tile([[1.0, 0.0, 1.0]], [len(MASK), 1])
    expected = call(layer, layout, x, probes=AttentionProbes(factors))
    layer.keep_heads([0, 2])
    np.testing.assert_allclose(call(layer, layout, x), expected, atol=1e-5)


def test_probabilities_come_with_the_same_rows():
    layer, layout = made(), TokenLayout.padded(tf.constant(MASK))
    x, probabilities = tf.constant(inputs(), tf.float32), []
    found = call(layer, layout, x, probes=AttentionProbes(probabilities=probabilities))
    np.testing.assert_array_equal(found, call(layer, layout, x))
    assert [one.shape for one in probabilities] == [(4, HEADS, 4, 4)]


def test_dropout_only_in_training_and_by_its_seeds():
    layer = made(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    layout, x = TokenLayout.packed(tf.constant(MASK)), tf.constant(inputs(), tf.float32)
    plain = call(layer, layout, x).numpy()
    np.testing.assert_array_equal(call(layer, layout, x), plain)
    one, other = (call(layer, layout, x, training=True).numpy() for _ in range(2))
    assert not np.array_equal(one, plain) and not np.array_equal(one, other)
    seeds = layer.draw_seeds()
    assert len({int(seed) for seed in seeds}) == 3
    same = [call(layer, layout, x, training=True, dropout_seeds=seeds) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    assert made().draw_seeds() == [None] * 3


@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
def test_mixed_precision(dtype):
    layer, mixed = made(), made(dtype=dtype)
    mixed.set_weights(layer.get_weights())
    layout, x = TokenLayout.packed(tf.constant(MASK)), tf.constant(inputs(), tf.float32)
    y = call(mixed, layout, tf.cast(x, mixed.compute_dtype))
    assert y.dtype == mixed.compute_dtype
    assert {variable.dtype for variable in mixed.trainable_variables} == {"float32"}
    bound = 4e-2 if "bfloat" in dtype else 4e-3
    float64.assert_near(y, call(layer, layout, x).numpy(), bound)


def test_steps_are_the_causal_block():
    layer, x = made(), tf.constant(inputs()[:2], tf.float32)
    layout = TokenLayout.padded(tf.ones([2, 4], tf.bool))
    expected = call(layer, layout, x, rule=AttentionRule(causal=True))
    nothing = tf.zeros([2, HEADS, 0, SIZE])
    cache = layer.attention.empty_cache(2, 4)
    for position in range(4):
        prefix = (nothing, nothing), tf.zeros([2, 0], tf.bool)
        y, cache = layer.step(x[:, position], tf.constant(position), cache, *prefix)
        np.testing.assert_allclose(y, expected[:, position], atol=1e-5)


@pytest.mark.parametrize("num_heads", [None, 2])
def test_config_round_trip(num_heads):
    layer, layout = made(num_heads), TokenLayout.packed(tf.constant(MASK))
    again = float64.again(layer)
    again.set_weights(layer.get_weights())
    assert again.get_config() == layer.get_config()
    x = tf.constant(inputs(), tf.float32)
    np.testing.assert_array_equal(call(again, layout, x), call(layer, layout, x))


def test_dense_layers_are_those_of_the_block():
    layer = made()
    dense = {id(one) for one in layer.dense_layers().values()}
    kernels = [one for one in layer.trainable_variables if one.name == "kernel"]
    assert len(dense) == len(kernels) == 4
