"""The decoder: token by token, with and without padding, it computes the same."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.generation.decoding_loop import take_rows
from bert_tf.layers import BertDecoder
from bert_tf.ops.native import static_shapes

LENGTHS = tf.constant([6, 2, 5])  # of three sequences
MEMORY_LENGTHS = tf.constant([4, 7, 1])
MASK, MEMORY_MASK = tf.sequence_mask(LENGTHS), tf.sequence_mask(MEMORY_LENGTHS)


@pytest.fixture(scope="module")
def decoder(tiny_config):
    return random_decoder(tiny_config)


def random_decoder(config, **options):
    """No weight is zero or one, so that one that is not used is noticed."""
    decoder = BertDecoder(config, **options)
    decoder.build()
    source = np.random.default_rng(0)
    for weight in decoder.weights:
        weight.assign(weight + source.normal(0.0, 0.3, weight.shape))
    return decoder


@pytest.fixture(scope="module")
def inputs(tiny_config):
    source = np.random.default_rng(1)
    memory = source.normal(size=[*MEMORY_MASK.shape, tiny_config.hidden_size])
    return {
        "token_ids": tf.constant(source.integers(5, 60, MASK.shape), tf.int32),
        "padding_mask": MASK,
        "memory": tf.constant(memory, tf.float32),
        "memory_mask": MEMORY_MASK,
    }


def all_logits(decoder, inputs, **options):
    """Logits `[B, T, V]` of whole sequences."""
    vectors, words = decoder(**inputs, **options)
    rows = tf.reshape(vectors, [-1, vectors.shape[-1]])
    return tf.reshape(decoder.logits(rows, words), [*MASK.shape, -1]).numpy()


def stepwise_logits(decoder, inputs):
    """The same in a loop in the graph; after two steps the sequences change places."""
    order = [2, 0, 1]
    token_ids = inputs["token_ids"]

    @tf.function
    def decode():
        state, memory = decoder.start(inputs["memory"], inputs["memory_mask"], MASK.shape[1] + 3)
        logits = tf.TensorArray(tf.float32, MASK.shape[1])

        def body(position, ids, state, memory, logits):
            new_logits, state, _ = decoder.step(ids[:, position], position, state, memory)
            logits = logits.write(position, new_logits)
            rows = tf.where(position == 1, order, tf.range(3))
            ids, state, memory = take_rows((ids, state, memory), rows)
            return position + 1, ids, state, memory, logits

        loop = (tf.constant(0), token_ids, state, memory, logits)
        *_, logits = tf.while_loop(lambda t, *_: t < MASK.shape[1], body, loop)
        return logits.stack()

    logits = decode().numpy()  # [T, B, V]
    logits[2:] = logits[2:, np.argsort(order)]
    return logits.transpose(1, 0, 2)


def test_several_sequences_on_the_same_memory(decoder, inputs):
    """As of beams: three sequences for each row of the memory."""
    token_ids = np.random.default_rng(2).integers(5, 60, [9, 3]).astype(np.int32)
    repeated = {name: tf.repeat(inputs[name], 3, axis=0) for name in ("memory", "memory_mask")}
    mask = tf.ones([9, 3], tf.bool)
    vectors, words = decoder(token_ids, padding_mask=mask, **repeated)
    state, memory = decoder.start(inputs["memory"], inputs["memory_mask"], 3)
    state = take_rows(state, np.repeat(range(3), 3))
    for position in range(3):
        logits, state, _ = decoder.step(token_ids[:, position], position, state, memory)
        expected = decoder.logits(vectors[:, position], words)
        np.testing.assert_allclose(logits, expected, atol=1e-5)


@pytest.mark.parametrize("is_static", [False, pytest.param(True, marks=pytest.mark.full)])
def test_token_by_token(decoder, inputs, is_static):
    expected = all_logits(decoder, inputs)
    if is_static:
        with static_shapes():
            received = stepwise_logits(decoder, inputs)
    else:
        received = stepwise_logits(decoder, inputs)
    np.testing.assert_allclose(received[MASK], expected[MASK], atol=1e-5)


def test_on_real_tokens_only(decoder, inputs):
    expected, received = (all_logits(decoder, inputs, packed=packed) for packed in (False, True))
    np.testing.assert_allclose(received[MASK], expected[MASK], atol=1e-5)


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_token_depends_on(decoder, inputs, packed):
    """On earlier tokens and on the real tokens of its own memory."""
    logits = all_logits(decoder, inputs, packed=packed)

    def changed(**changes):
        """Which tokens `[B, T]` have other logits with other inputs."""
        other = all_logits(decoder, {**inputs, **changes}, packed=packed)
        return (np.abs(other - logits).max(axis=-1) > 1e-4)[MASK]

    later = tf.concat([inputs["token_ids"][:, :3], 1 + inputs["token_ids"][:, 3:]], axis=1)
    np.testing.assert_array_equal(changed(token_ids=later), np.where(MASK)[1] >= 3)
    padding = tf.where(MEMORY_MASK[..., tf.newaxis], inputs["memory"], 9.0)
    assert not changed(memory=padding).any()
    of_second = inputs["memory"] + tf.constant([0.0, 1.0, 0.0])[:, tf.newaxis, tf.newaxis]
    np.testing.assert_array_equal(changed(memory=of_second), np.where(MASK)[0] == 1)


def test_in_bfloat16(tiny_config, inputs):
    """The steps compute in the same dtype as a call."""
    decoder = random_decoder(tiny_config, dtype="mixed_bfloat16")
    inputs = {**inputs, "memory": tf.cast(inputs["memory"], tf.bfloat16)}
    state, memory = decoder.start(inputs["memory"], MEMORY_MASK, 2)
    assert {v.dtype for v in tf.nest.flatten((state, memory))} == {tf.bool, tf.bfloat16}
    logits, *_ = decoder.step(inputs["token_ids"][:, 0], 0, state, memory)
    assert logits.dtype == tf.float32
    np.testing.assert_allclose(logits, all_logits(decoder, inputs)[:, 0], atol=0.3)


def test_dropout_is_for_training(tiny_config, inputs):
    """Only in the cross-attention, which no other test of dropout reaches."""
    config = dataclasses.replace(tiny_config, hidden_dropout_prob=0.0, num_hidden_layers=1)
    decoder = random_decoder(config)
    decoder.blocks[0].block.attention.dropout_rate = 0.0
    one, other = (all_logits(decoder, inputs, training=True) for _ in range(2))
    assert np.abs(one - other)[MASK].max() > 1e-3
    np.testing.assert_array_equal(all_logits(decoder, inputs), all_logits(decoder, inputs))
