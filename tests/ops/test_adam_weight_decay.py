"""adam_weight_decay, native and reference, against float64."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from tests.ops.backends import BACKENDS

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("correct", [False, True])
def test_follows_the_formula(backend, in_graph, correct):
    rng = np.random.default_rng(0)
    x, m, v = rng.normal(size=(37, 5)), np.zeros((37, 5)), np.zeros((37, 5))
    variables = [tf.Variable(a.astype(np.float32)) for a in (x, m, v)]
    gradients = rng.normal(size=(10, 37, 5)).astype(np.float32)

    def step(gradient, number):
        ops.adam_weight_decay(
            *variables,
            gradient,
            learning_rate=0.1,
            gradient_scale=tf.constant(0.5),
            weight_decay=0.01,
            steps=number if correct else None,
        )

    step = tf.function(step) if in_graph else step
    with ops.backend(backend):
        for number, gradient in enumerate(gradients, 1):
            step(tf.constant(gradient), tf.constant(number, tf.int64))
            g = 0.5 * gradient.astype(np.float64)
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
            factor = np.sqrt(1 - 0.999**number) / (1 - 0.9**number) if correct else 1.0
            x = x - 0.1 * (factor * m / (np.sqrt(v) + 1e-6) + 0.01 * x)
    for variable, expected in zip(variables, (x, m, v)):
        np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-4, atol=1e-5)


def test_a_read_before_the_step_keeps_its_value(backend):
    variable, m, v = (tf.Variable(tf.ones([1000])) for _ in range(3))
    before = variable.read_value()
    with ops.backend(backend):
        ops.adam_weight_decay(variable, m, v, tf.ones([1000]), learning_rate=0.1)
    np.testing.assert_array_equal(before, 1.0)
    assert (variable.numpy() < 1.0).all()


def test_shapes_that_do_not_fit(backend):
    variable, m, v = (tf.Variable(tf.ones([3])) for _ in range(3))
    with ops.backend(backend), pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        ops.adam_weight_decay(variable, m, v, tf.ones([4]), learning_rate=0.1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_is_refused(backend, dtype):
    variable, m, v = (tf.Variable(tf.ones([3], dtype)) for _ in range(3))
    for op in (ops.adam_weight_decay, ops.adam_weight_decay_reference):
        with ops.backend(backend), pytest.raises(UserError, match=f"dtype={dtype}"):
            op(variable, m, v, tf.ones([3], dtype), learning_rate=0.1)
