"""The CRF against every path written out, in float64."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.layers.crf import ConditionalRandomField

B, T, C = 5, 6, 3


def path_score(emissions, path, crf):
    transitions, start, end = crf
    score = start[path[0]] + end[path[-1]]
    score += sum(emissions[place, tag] for place, tag in enumerate(path))
    return score + sum(transitions[a, b] for a, b in zip(path, path[1:]))


def all_paths(emissions, mask, crf):
    """Paths over the words of one row, and their scores."""
    words = np.flatnonzero(mask)
    paths = list(itertools.product(range(C), repeat=len(words)))
    return words, paths, np.array([path_score(emissions[words], path, crf) for path in paths])


@pytest.fixture(scope="module")
def case():
    generator = np.random.default_rng(4)
    emissions = generator.normal(0, 2, [B, T, C])
    mask = generator.random([B, T]) < 0.6  # with holes
    mask[0], mask[1], mask[2] = True, False, np.arange(T) == 3
    tags = generator.integers(0, C, [B, T])
    values = [generator.normal(0, 1, shape) for shape in ([C, C], [C], [C])]
    crf = ConditionalRandomField(C)
    crf.set_weights(values)
    return crf, [v.numpy().astype(np.float64) for v in crf.variables], emissions, mask, tags


def brute_losses(values, emissions, mask, tags):
    losses = []
    for row in range(B):
        words, _, scores = (
            all_paths(emissions[row], mask[row], values) if mask[row].any() else ((), (), None)
        )
        if not len(words):
            losses.append(0.0)
            continue
        gold = path_score(emissions[row, words], tags[row, words], values)
        losses.append(np.logaddexp.reduce(scores) - gold)
    return np.array(losses)


@pytest.mark.parametrize("how", ["eager", "graph", "xla"])
def test_every_path(case, how):
    crf, values, emissions, mask, tags = case
    wrap = {
        "eager": lambda f: f,
        "graph": lambda f: tf.function(
            f,
            input_signature=[
                tf.TensorSpec([None, None, C]),
                tf.TensorSpec([None, None], tf.int32),
                tf.TensorSpec([None, None], tf.bool),
            ],
        ),
        "xla": lambda f: tf.function(f, jit_compile=True),
    }[how]
    inputs = [tf.constant(emissions, tf.float32), tf.constant(tags, tf.int32), tf.constant(mask)]
    losses = wrap(crf.negative_log_likelihood)(*inputs)
    np.testing.assert_allclose(
        losses, brute_losses(values, emissions, mask, tags), rtol=1e-5, atol=1e-5
    )
    found = wrap(lambda e, t, m: crf(e, m))(*inputs).numpy()
    for row in range(B):
        if not mask[row].any():
            continue
        words, paths, scores = all_paths(emissions[row], mask[row], values)
        assert tuple(found[row, words]) == paths[int(scores.argmax())]
    assert not found[~mask].any()


def test_gradients_by_finite_differences(case):
    crf, values, emissions, mask, tags = case
    weights = np.array([1.0, 2.0, 0.5, 1.0, 3.0])

    def total(values, emissions):
        return float(brute_losses(values, emissions, mask, tags) @ weights)

    @tf.function
    def gradients(emissions):
        with tf.GradientTape() as tape:
            tape.watch(emissions)
            losses = crf.negative_log_likelihood(emissions, tags, tf.constant(mask))
            loss = tf.tensordot(losses, tf.constant(weights, tf.float32), 1)
        return tape.gradient(loss, [*crf.trainable_variables, emissions])

    points = [*values, emissions]
    for index, gradient in enumerate(gradients(tf.constant(emissions, tf.float32))):
        expected = np.zeros_like(points[index])
        for place in np.ndindex(expected.shape):
            at = []
            for step in (1e-5, -1e-5):
                moved = [point.copy() for point in points]
                moved[index][place] += step
                at.append(total(moved[:3], moved[3]))
            expected[place] = (at[0] - at[1]) / 2e-5
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-4)


def test_one_word_and_config(case):
    crf, values, emissions, _, tags = case
    one = emissions[:, :1]
    losses = crf.negative_log_likelihood(one, tags[:, :1], tf.ones([B, 1], tf.bool))
    scores = one[:, 0] + values[1] + values[2]
    expected = np.logaddexp.reduce(scores, axis=1) - scores[np.arange(B), tags[:, 0]]
    np.testing.assert_allclose(losses, expected, rtol=1e-5, atol=1e-5)
    assert crf(one, tf.ones([B, 1], tf.bool)).numpy()[:, 0].tolist() == scores.argmax(1).tolist()
    assert ConditionalRandomField.from_config(crf.get_config()).num_tags == C
