"""Sampling draws tokens with their probabilities."""

import numpy as np
import tensorflow as tf

from bert_tf.generation import GenerationConfig, generate
from bert_tf.generation.decoding import uniform_numbers
from tests.generation import numpy_generation

ROWS = 20_000
PROBABILITIES = np.array([0.05, 0.3, 0.15, 0.4, 0.1])


def drawn(**options):
    """The first and the second tokens of many rows, which are independent of each other."""
    config = GenerationConfig(max_new_tokens=2, min_new_tokens=2, do_sample=True, **options)
    # The logits of the end token, 5, are so low that it is never drawn.
    logits = np.log(np.append(PROBABILITIES, 1e-30)).astype(np.float32)

    def step(token_ids, position, state, memory):
        return tf.repeat(logits[np.newaxis], ROWS, axis=0), state

    found = generate(step, (), [0] * ROWS, config, end_id=5, pad_id=0, vocab_size=6)
    return found.token_ids.numpy(), numpy_generation.distribution(logits, config)[:5]


def test_frequencies():
    for options in ({}, {"temperature": 2.0}, {"top_k": 3}, {"top_p": 0.8, "temperature": 0.5}):
        token_ids, probabilities = drawn(**options)
        pairs = np.histogramdd(token_ids, bins=[np.arange(6)] * 2)[0] / ROWS
        # Four standard deviations of the most frequent pair.
        np.testing.assert_allclose(
            pairs, np.outer(probabilities, probabilities), atol=4 * (0.25 / ROWS) ** 0.5
        )
        assert ((pairs > 0) == (np.outer(probabilities, probabilities) > 0)).all()


def test_token_0_if_all_tokens_are_forbidden():
    for options in ({}, {"do_sample": True}):
        config = GenerationConfig(4, min_new_tokens=4, no_repeat_ngram_size=1, **options)
        step = lambda token_ids, position, state, memory: (tf.zeros([3, 3]), state)  # noqa: E731
        found = generate(step, (), [0, 0, 2], config, end_id=1, pad_id=0, vocab_size=3)
        np.testing.assert_array_equal(found.token_ids, [[2, 0, 0, 0], [2, 0, 0, 0], [0, 0, 0, 0]])


def test_random_numbers_are_those_of_their_stream():
    numbers = uniform_numbers(9, tf.constant([4, 0, 4], tf.int64), 5).numpy()
    np.testing.assert_array_equal(numbers[0], numbers[2])
    np.testing.assert_array_equal(numbers[:, :3], uniform_numbers(9, [4, 0, 4], 3))
    many = uniform_numbers(0, tf.range(1000, dtype=tf.int64), 64).numpy()
    assert many.min() >= 0 and many.max() < 1
    assert abs(many.mean() - 0.5) < 0.01 and len(np.unique(many)) > 63_000
