"""`KeyValueCache`: attention with it is attention over all tokens so far."""

import contextlib

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.generation import GenerationConfig, generate
from bert_tf.layers import KeyValueCache
from bert_tf.layers.attention.dot_product_attention import cached_attention
from bert_tf.layers.attention.key_values import BLOCK_LENGTH
from bert_tf.ops.native import static_shapes

V, S, N, D = 20, BLOCK_LENGTH + 8, 2, 8
H = N * D


@pytest.fixture(scope="module")
def weights():
    generator = np.random.default_rng(5)

    def draw(*shape, scale=1.0):
        return tf.constant(generator.standard_normal(shape) * scale, tf.float32)

    return {
        "tokens": draw(V, H),
        "positions": draw(S, H),
        "qkv": draw(H, 3 * H, scale=0.3),
        "output": draw(H, V, scale=1.5),
    }


def projected(weights, token_ids, position):
    """Query, key and value of tokens `[n]` at a position, 3 of `[n, N, D]`."""
    hidden = tf.gather(weights["tokens"], token_ids) + weights["positions"][position]
    return tf.unstack(tf.reshape(hidden @ weights["qkv"], [-1, 3, N, D]), axis=1)


def attended(weights, query, keys, values, mask):
    """The logits `[n, V]` after attention to the keys and values `[n, S', N, D]`."""
    scores = tf.einsum("nhd,nshd->nhs", query, keys) * D**-0.5
    probabilities = tf.nn.softmax(tf.where(mask, scores, -1e9))
    context = tf.einsum("nhs,nshd->nhd", probabilities, values)
    return tf.reshape(context, [-1, H]) @ weights["output"]  # [n, N, D] -> [n, H] -> [n, V]


def cached_step(weights, widths):
    def step(token_ids, position, state, memory):
        query, key, value = projected(weights, token_ids, position)
        cache = state["layer"].append(position, key, value)
        if tf.executing_eagerly():
            widths.append(cache.keys.shape[2])
        context = cached_attention(query, (*cache, cache.mask(position)))  # [n, H]
        return context @ weights["output"], {"layer": cache}

    return step


def uncached_step(weights):
    def step(token_ids, position, history, memory):
        history = tf.where(tf.range(S) == position, token_ids[:, tf.newaxis], history)  # [n, S]
        parts = [projected(weights, history[:, index], index) for index in range(S)]
        query = tf.gather(tf.stack([part[0] for part in parts]), position)  # [n, N, D]
        keys, values = (tf.stack([part[i] for part in parts], axis=1) for i in (1, 2))
        return attended(weights, query, keys, values, tf.range(S) <= position), history

    return step


CONFIG = GenerationConfig(S, num_beams=3, min_new_tokens=S, early_stopping=True)
IDS = dict(end_id=1, pad_id=0, vocab_size=V)


@pytest.fixture(scope="module")
def expected(weights):
    return generate(uncached_step(weights), tf.zeros([2, S], tf.int32), [3, 4], CONFIG, **IDS)


def decoded(weights, widths=()):
    state = {"layer": KeyValueCache.empty(2, S, N, D)}
    return generate(cached_step(weights, widths), state, [3, 4], CONFIG, **IDS)


def test_the_same_sequences_as_without_a_cache(weights, expected):
    widths = []
    found = decoded(weights, widths)
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert widths == [BLOCK_LENGTH] * BLOCK_LENGTH + [2 * BLOCK_LENGTH] * (S - BLOCK_LENGTH)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_in_a_graph(weights, expected, jit_compile):
    decode = tf.function(lambda: decoded(weights), jit_compile=jit_compile)
    with static_shapes() if jit_compile else contextlib.nullcontext():
        found = decode()
    np.testing.assert_array_equal(found.token_ids, expected.token_ids)


def test_other_positions_are_left_alone():
    ones = tf.ones([2, N, D], "bfloat16")
    cache = KeyValueCache.empty(2, S, N, D, "bfloat16").append(2, ones, ones)
    for values in tf.nest.map_structure(lambda v: tf.cast(v, tf.float32).numpy(), cache):
        assert values[:, :, 2].min() == 1 and not np.delete(values, 2, axis=2).any()
    np.testing.assert_array_equal(cache.mask(2), np.arange(BLOCK_LENGTH) <= 2)
