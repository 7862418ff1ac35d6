"""The processors of logits against their definitions in plain Python."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.generation import GenerationConfig
from bert_tf.generation.logits_processors import Known, process_logits, restrict_logits
from tests.generation import numpy_generation

END = 1


def processed(logits, token_ids, position, ends=(END,), source_ids=(), **options):
    config = GenerationConfig(max_new_tokens=20, **options)
    known = Known(tf.constant(token_ids, tf.int32), tf.constant(position), ends, source_ids)
    return process_logits(tf.constant(logits), config, known).numpy()


def test_ngrams_of_all_sizes():
    """Few tokens, so that many sequences repeat; what is not known yet has no influence."""
    generator = np.random.default_rng(0)
    token_ids = generator.integers(0, 3, (16, 12))
    logits = generator.standard_normal((16, 5)).astype(np.float32)
    num_forbidden = []
    for size in (1, 2, 3, 4, 12, 13):
        for position in range(12):
            found = processed(logits, token_ids, position, no_repeat_ngram_size=size)
            config = GenerationConfig(max_new_tokens=20, no_repeat_ngram_size=size)
            for row in range(16):
                known = token_ids[row, : position + 1].tolist()
                expected = numpy_generation.processed(logits[row], known, config, (END,))
                np.testing.assert_array_equal(found[row], expected.astype(np.float32))
        num_forbidden.append(int(np.isneginf(found).sum()))
    assert num_forbidden[0] > num_forbidden[1] > num_forbidden[3] > num_forbidden[5] == 0


def test_a_token_is_penalized_once():
    logits = np.array([[2.0, -2.0, 3.0, -3.0]], np.float32)
    found = processed(logits, [[0, 3, 0, 3, 2]], 3, repetition_penalty=2.0)
    np.testing.assert_array_equal(found, [[1.0, -2.0, 3.0, -6.0]])


def test_the_end_is_forbidden_before_the_minimum_length():
    logits = np.zeros([2, 4], np.float32)
    for position, is_forbidden in ((0, True), (2, True), (3, False)):
        found = processed(logits, np.zeros([2, 9]), position, min_new_tokens=3)
        np.testing.assert_array_equal(np.isneginf(found[:, END]), [is_forbidden] * 2)
        assert (np.delete(found, END, axis=1) == 0).all()


def test_restrictions():
    logits = np.random.default_rng(1).standard_normal((8, 50)).astype(np.float32) * 3
    for temperature in (1.0, 0.3, 2.0):
        for top_k in (None, 1, 7, 50, 80):
            for top_p in (None, 1e-9, 0.5, 0.95, 1.0):
                config = GenerationConfig(
                    9, do_sample=True, temperature=temperature, top_k=top_k, top_p=top_p
                )
                found = tf.nn.softmax(restrict_logits(tf.constant(logits), config)).numpy()
                expected = [numpy_generation.distribution(row, config) for row in logits]
                np.testing.assert_allclose(found, expected, atol=1e-6)
                np.testing.assert_array_equal(found > 0, np.array(expected) > 0)


@pytest.mark.parametrize(
    "probabilities, options, kept",
    [
        ([0.2, 0.35, 0.35, 0.1], {"top_k": 1}, [1, 2]),
        ([0.2, 0.35, 0.35, 0.1], {"top_p": 0.3}, [2]),
        ([0.2, 0.35, 0.35, 0.1], {"top_k": 1, "top_p": 0.6}, [1, 2]),
        ([0.3, 0.1, 0.1, 0.5], {"top_p": 0.8}, [0, 3]),
        ([0.3, 0.1, 0.1, 0.5], {"top_p": 0.85}, [0, 2, 3]),
        ([0.3, 0.1, 0.1, 0.5], {"top_p": 1e-9}, [3]),
        ([0.25, 0.25, 0.25, 0.25], {"top_p": 0.75}, [1, 2, 3]),  # the first has just 1 - top_p
    ],
)
def test_equal_probabilities(probabilities, options, kept):
    """Those of the k-th token are kept with it; of top_p's the first are left out, one by one."""
    logits = tf.constant([np.log(probabilities)], tf.float32)
    found = restrict_logits(logits, GenerationConfig(9, do_sample=True, **options)).numpy()
    np.testing.assert_array_equal(np.where(np.isfinite(found[0]))[0], kept)
