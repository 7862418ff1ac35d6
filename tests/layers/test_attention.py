"""BertSelfAttention: every rule of who attends to whom, in every layout, against float64."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertConfig
from bert_tf.errors import UserError
from bert_tf.layers import BertEncoder, BertEncoderBlock, BertSelfAttention
from bert_tf.layers.attention.rotation import rotation
from bert_tf.layers.attention.self_attention import AttentionProbes
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.ops import AttentionRule
from tests.layers import float64

HEADS, SIZE, LENGTH = 3, 5, 7
CONFIG = BertConfig(
    vocab_size=8,
    hidden_size=HEADS * SIZE,
    num_attention_heads=HEADS,
    intermediate_size=11,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
LAYOUTS = {
    "padded": TokenLayout.padded,
    "packed": TokenLayout.packed,
    "packed in place": TokenLayout.packed_in_place,
}
# Padding right, left and between tokens; a row of one token, and one of none.
MASK = np.array(
    [
        [1, 1, 1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0, 0, 0],
        [0, 0, 1, 1, 1, 1, 1],
        [1, 0, 1, 1, 0, 1, 1],
        [0, 0, 0, 1, 0, 0, 0],
        [0, 0, 0, 0, 0, 0, 0],
    ],
    bool,
)
FIRST_TWO = MASK & (np.cumsum(MASK, axis=1) <= 2)  # the first two tokens of each sequence
BLOCKS = np.array([[1, 0, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1], [0, 0, 0, 1]], bool)
BIAS = np.random.default_rng(3).normal(size=[HEADS, 2 * 2 + 1])  # distances -2 to 2, or farther


def causal(query, key, token):
    return key <= query


def window(query, key, token):
    return abs(query - key) <= 1


def window_and_global(query, key, token):
    return (abs(query - key) <= 1) | (query < 2) | (key < 2)


def prefix(query, key, token):
    return (key <= query) | token[np.newaxis]


def attended(query, key, token):
    return np.broadcast_to(token[np.newaxis], [len(token)] * 2)


def everything(query, key, token):
    return np.ones([len(token)] * 2, bool)


def blocks(query, key, token):
    return BLOCKS[query // 2, key // 2]


# The fields of a rule, and which keys a query attends to. A formula takes the places of queries
# `[S, 1]` and keys `[1, S]` among the real tokens, and whether each token is attended to `[S]`.
RULES = {
    "everything": ({}, everything),
    "causal": ({"causal": True}, causal),
    "window": ({"window_size": 1}, window),
    "window and global": ({"window_size": 1, "num_global_tokens": 2}, window_and_global),
    "causal window": (
        {"window_size": 1, "causal": True},
        lambda *places: window(*places) & causal(*places),
    ),
    "prefix": ({"causal": True, "attended_rows": FIRST_TWO}, prefix),
    "attended": ({"attended_rows": FIRST_TWO}, attended),
    "blocks": ({"attended_blocks": BLOCKS, "block_size": 2}, blocks),
    "distance bias": ({"distance_bias": BIAS}, everything),
}
every_rule = pytest.mark.parametrize("rule", RULES)
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)


def made(kind=BertSelfAttention, **options):
    layer = kind(CONFIG, **options)
    layer.build([None, CONFIG.hidden_size])
    float64.randomize(layer)
    return layer


def rule_of(name, layout):
    fields = dict(RULES[name][0])
    if "attended_rows" in fields:
        fields["attended_rows"] = layout.to_rows(tf.constant(FIRST_TWO))
    if "attended_blocks" in fields:
        count = len(MASK) if layout.row_splits is None else len(layout.row_splits) - 1
        fields["attended_blocks"] = tf.constant(np.tile(BLOCKS, [count, 1, 1]))
    if "distance_bias" in fields:
        fields["distance_bias"] = tf.constant(BIAS, tf.float32)
    return AttentionRule(**fields)


def sequence(weights, x, rule, token):
    """The attention of one sequence `[S, H]` and its probabilities `[n, S, S]`."""
    fields, attends = RULES[rule]
    places = np.arange(len(x))
    query, key = places[:, np.newaxis], places[np.newaxis]
    bias = 0.0
    if "distance_bias" in fields:
        bias = BIAS[:, np.clip(query - key, -2, 2) + 2]
    qkv = x @ weights["query_key_value/kernel"] + weights["query_key_value/bias"]
    return float64.attention(qkv, HEADS, attends(query, key, token), bias)


def formula(weights, x, rule):
    """The attention of a batch `[B, T, H]`, with zeros for padding."""
    y = np.zeros_like(x)
    for row, mask in enumerate(MASK):
        if mask.any():
            y[row, mask] = sequence(weights, x[row, mask], rule, FIRST_TWO[row, mask])[0]
    return y


def inputs():
    return np.random.default_rng(0).normal(size=[*MASK.shape, CONFIG.hidden_size])


def attend(layer, layout, x, **options):
    return layout.to_batch(layer(layout.to_rows(x), layout=layout, **options))


@every_rule
@every_layout
def test_rows_and_gradients(layout, rule):
    layer, layout = made(), layout(tf.constant(MASK))
    options = {"rule": rule_of(rule, layout)}
    float64.assert_right(
        layer, lambda x: attend(layer, layout, x, **options), formula, [inputs()], rule=rule
    )


@every_rule
def test_probabilities_of_a_padded_layout(rule):
    layer, layout, x = made(), TokenLayout.padded(tf.constant(MASK)), inputs()
    probabilities = []
    options = {
        "rule": rule_of(rule, layout),
        "probes": AttentionProbes(probabilities=probabilities),
    }
    attend(layer, layout, tf.constant(x, tf.float32), **options)
    (probabilities,) = probabilities
    weights = float64.weights_of(layer)
    for row, mask in enumerate(MASK[:5]):
        expected = sequence(weights, x[row, mask], rule, FIRST_TWO[row, mask])[1]
        found = probabilities.numpy()[row][:, mask][:, :, mask]
        np.testing.assert_allclose(found, expected, atol=1e-5)
        assert not probabilities.numpy()[row][:, mask][:, :, ~mask].any()


@pytest.mark.parametrize("kind", [BertSelfAttention, BertEncoderBlock, BertEncoder])
@pytest.mark.parametrize("layout", [TokenLayout.packed, TokenLayout.packed_in_place])
def test_probabilities_of_a_packed_layout_are_refused(kind, layout):
    layout = layout(tf.constant(MASK))
    rows = tf.ones([len(layout.real_tokens), CONFIG.hidden_size])
    layer = kind(CONFIG)
    layer(rows, layout=layout)
    with pytest.raises(UserError, match="`layout` must be padded.*probabilities"):
        layer(rows, layout=layout, probes=AttentionProbes(probabilities=[]))


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"window_size": -1}, "must be at least 0.*window_size=-1"),
        ({"window_size": 1, "num_global_tokens": -2}, "must be at least 0.*num_global_tokens=-2"),
        ({"num_global_tokens": 1}, "must be given with `num_global_tokens`"),
        ({"attended_rows": tf.ones([2], tf.bool), "window_size": 1}, "must be None with a window"),
        ({"attended_rows": tf.ones([2], tf.bool), "distance_bias": BIAS}, "a distance bias"),
        ({"attended_blocks": BLOCKS, "causal": True}, "`attended_blocks` must be None .*causal"),
        ({"attended_blocks": BLOCKS, "window_size": 1}, "`attended_blocks` must be None with a"),
    ],
)
def test_rules_that_contradict_themselves_are_refused(fields, words):
    with pytest.raises(UserError, match=words):
        AttentionRule(**fields)


@every_layout
def test_head_mask_multiplies_the_heads_of_an_example(layout):
    layer, layout = made(), layout(tf.constant(MASK))
    x = tf.constant(inputs(), tf.float32)
    factors = np.random.default_rng(1).normal(size=[len(MASK), HEADS]).astype("float32")
    expected = attend(layer, layout, x).numpy() * np.repeat(factors, SIZE, axis=1)[:, np.newaxis]
    found = attend(layer, layout, x, probes=AttentionProbes(tf.constant(factors)))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("rule", ["everything", "distance bias"])
@pytest.mark.parametrize("dtype", ["mixed_float16", "mixed_bfloat16"])
@every_layout
def test_mixed_precision(layout, dtype, rule):
    layer, mixed = made(), made(dtype=dtype)
    mixed.set_weights(layer.get_weights())
    layout, x = layout(tf.constant(MASK)), tf.constant(inputs(), tf.float32)
    rule = rule_of(rule, layout)
    y = attend(mixed, layout, tf.cast(x, mixed.compute_dtype), rule=rule)
    assert y.dtype == mixed.compute_dtype
    bound = 3e-2 if "bfloat" in dtype else 4e-3
    float64.assert_near(y, attend(layer, layout, x, rule=rule).numpy(), bound)


@every_layout
def test_dropout_only_in_training_and_by_its_seed(layout):
    layer = made()
    layer.dropout_rate = 0.5
    layout, x = layout(tf.constant(MASK)), tf.constant(inputs(), tf.float32)
    plain = attend(layer, layout, x).numpy()
    one, other = (attend(layer, layout, x, training=True).numpy() for _ in range(2))
    assert not np.array_equal(one, plain) and not np.array_equal(one, other)
    seed = tf.constant(3, tf.int64)
    same = [attend(layer, layout, x, training=True, dropout_seed=seed) for _ in range(2)]
    np.testing.assert_array_equal(*same)


def test_steps_are_causal_attention():
    layer, x = made(), tf.constant(inputs()[:2], tf.float32)
    layout = TokenLayout.padded(tf.ones([2, LENGTH], tf.bool))
    expected = attend(layer, layout, x, rule=AttentionRule(causal=True))
    cache = layer.empty_cache(2, LENGTH)
    for position in range(LENGTH):
        y, cache = layer.step(x[:, position], tf.constant(position), cache)
        np.testing.assert_allclose(y, expected[:, position], atol=1e-5)


def test_heads_that_are_kept_compute_what_they_did():
    layer, layout = made(), TokenLayout.packed(tf.constant(MASK))
    x = tf.constant(inputs(), tf.float32)
    before = attend(layer, layout, x).numpy().reshape(*MASK.shape, HEADS, SIZE)
    layer.keep_heads([2, 0])
    after = attend(layer, layout, x).numpy().reshape(*MASK.shape, 2, SIZE)
    np.testing.assert_allclose(after, before[:, :, [2, 0]], atol=1e-6)
    assert layer.num_heads == 2


@pytest.mark.parametrize("num_heads", [None, 2])
def test_config_round_trip(num_heads):
    layer = made(num_heads=num_heads)
    again = float64.again(layer)
    again.set_weights(layer.get_weights())
    assert again.get_config() == layer.get_config()
    layout, x = TokenLayout.packed(tf.constant(MASK)), tf.constant(inputs(), tf.float32)
    rows = layout.to_rows(x)
    np.testing.assert_array_equal(again(rows, layout=layout), layer(rows, layout=layout))
    assert layer(rows, layout=layout).shape[1] == (num_heads or HEADS) * SIZE


def test_static_scaling_divides_the_slowest_angles_by_its_factor():
    plain, scaled = (angles_of(rotation(2, 16, 500.0, factor)) for factor in (1.0, 4.0))
    assert scaled[-1] == pytest.approx(plain[-1] / 4.0, rel=1e-5)
    assert scaled[0] == pytest.approx(plain[0] / 4.0 ** (2 / 16), rel=1e-5)


def angles_of(table):
    """The angles of place 1 in a table of `rotation`."""
    cosine, sine = np.split(np.asarray(table[1], np.float64), 2)
    return np.arctan2(sine, cosine)
