"""adam_weight_decay and the norm of gradients, native and reference, against float64."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from bert_tf.ops.adam_weight_decay import AdamUpdate, adam_weight_decay_all, global_norm
from tests.numpy_bert import error_bound
from tests.ops.backends import BACKENDS

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def step_of(x, m, v, gradient, rate, decay, number=None):
    """The formula with a gradient scale of 0.5, in the dtype of `x`: x, m and v after a step."""
    dtype = x.dtype.type
    g = dtype(0.5) * gradient.astype(dtype)
    m = dtype(0.9) * m + dtype(0.1) * g
    v = dtype(0.999) * v + dtype(0.001) * g**2
    factor = 1.0
    if number is not None:
        factor = np.sqrt(1 - dtype(0.999) ** number) / (1 - dtype(0.9) ** number)
    return x - rate * (factor * m / (np.sqrt(v) + dtype(1e-6)) + decay * x), m, v


def float32_values(rng, shape):
    """x, m and v before the first step."""
    x = rng.normal(size=shape).astype(np.float32)
    return x, np.zeros_like(x), np.zeros_like(x)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("correct", [False, True])
def test_follows_the_formula(backend, in_graph, correct):
    rng = np.random.default_rng(0)
    rounded = float32_values(rng, (37, 5))
    exact = [a.astype(np.float64) for a in rounded]
    variables = [tf.Variable(a) for a in rounded]
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
            options = (gradient, 0.1, 0.01, number if correct else None)
            exact, rounded = step_of(*exact, *options), step_of(*rounded, *options)
    for variable, expected, plain in zip(variables, exact, rounded, strict=True):
        bound = error_bound(expected, plain)
        np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=bound)


# More tensors than a CUDA kernel takes in one launch.
SHAPES = [(), (0,), (3, 5), (4097,), (2, 0, 3), (9000,), *[(i % 9 + 1,) for i in range(60)]]
DTYPES = ("float32", "bfloat16", "float16")


def tensors_of_every_type(rng, dtypes=DTYPES):
    return [
        tf.cast(tf.constant(rng.normal(size=shape)), dtypes[i % len(dtypes)])
        for i, shape in enumerate(SHAPES)
    ]


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_list_of_variables(backend, in_graph):
    rng = np.random.default_rng(0)
    rounded = [float32_values(rng, shape) for shape in SHAPES]
    exact = [[a.astype(np.float64) for a in values] for values in rounded]
    variables = [[tf.Variable(a) for a in values] for values in rounded]
    multipliers = [0.5 ** (i % 4) for i in range(len(SHAPES))]
    decays = [None if i % 3 else 0.01 * i for i in range(len(SHAPES))]

    def step(gradients):
        rows = zip(variables, gradients, multipliers, decays)
        updates = [AdamUpdate(*of, gradient, *options) for of, gradient, *options in rows]
        adam_weight_decay_all(updates, 0.1, tf.constant(0.5), 0.9, 0.999, 1e-6, None)

    step = tf.function(step) if in_graph else step
    with ops.backend(backend):
        for _ in range(3):
            gradients = tensors_of_every_type(rng)
            step(gradients)
            for i, gradient in enumerate(gradients):
                options = (gradient.numpy(), 0.1 * multipliers[i], decays[i] or 0.0)
                exact[i] = step_of(*exact[i], *options)
                rounded[i] = step_of(*rounded[i], *options)
    for kind in range(3):  # x, m and v
        received, expected, plain = (
            np.concatenate([np.ravel(values[kind]) for values in rows])
            for rows in (variables, exact, rounded)
        )
        bound = error_bound(expected, plain)
        np.testing.assert_allclose(received, expected, rtol=0, atol=bound)


def test_a_variable_in_a_list_has_the_bits_that_it_has_alone(backend):
    rng = np.random.default_rng(0)
    values, gradients = (tensors_of_every_type(rng, DTYPES[:1]) for _ in range(2))
    results = []
    with ops.backend(backend):
        for alone in (False, True):
            variables = [[tf.Variable(x), *map(tf.Variable, [0 * x] * 2)] for x in values]
            updates = [
                AdamUpdate(*of, gradient, 1.0, 0.01) for of, gradient in zip(variables, gradients)
            ]
            for part in [[update] for update in updates] if alone else [updates]:
                adam_weight_decay_all(part, 0.1, None, 0.9, 0.999, 1e-6, tf.constant(3))
            results.append([variable.numpy() for of in variables for variable in of])
    for together, alone in zip(*results, strict=True):
        np.testing.assert_array_equal(together, alone)


def test_not_a_number_stays_in_its_element(backend):
    variables = [[tf.Variable(tf.ones([40])) for _ in range(3)] for _ in range(2)]
    gradient = np.ones(40, np.float32)
    gradient[[7, 9]] = np.nan, np.inf
    with ops.backend(backend):
        updates = [AdamUpdate(*of, tf.constant(gradient), 1.0, 0.01) for of in variables[:1]]
        updates.append(AdamUpdate(*variables[1], tf.ones([40]), 1.0, 0.01))
        adam_weight_decay_all(updates, 0.1, None, 0.9, 0.999, 1e-6, None)
    assert np.flatnonzero(~np.isfinite(variables[0][0].numpy())).tolist() == [7, 9]
    assert np.isfinite(variables[1][0].numpy()).all()


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("dtypes", [DTYPES, *[[dtype] for dtype in DTYPES], ["float64"]])
def test_global_norm(backend, dtypes, in_graph):
    tensors = tensors_of_every_type(np.random.default_rng(1), dtypes)
    norm = tf.function(global_norm) if in_graph else global_norm
    with ops.backend(backend):
        results = [norm(tensors).numpy() for _ in range(3)]
    expected, plain = (
        np.sqrt(sum(np.sum(tensor.numpy().astype(dtype) ** 2) for tensor in tensors))
        for dtype in (np.float64, np.float32)
    )
    np.testing.assert_allclose(results[0], expected, rtol=0, atol=error_bound(expected, plain))
    assert results[0].dtype == np.float32 and results[0] == results[1] == results[2]


def test_global_norm_of_what_is_not_finite(backend):
    with ops.backend(backend):
        for value in (np.inf, -np.inf):
            assert np.isposinf(global_norm([tf.ones([3]), tf.constant([1.0, value])]))
        assert np.isnan(global_norm([tf.ones([5000]), tf.constant([1.0, np.nan])]))
        assert global_norm([tf.zeros([0]), tf.zeros([3, 0])]) == 0.0


def test_nothing_computes_the_cast_of_a_gradient(backend):
    """Under mixed precision, the gradient of a float32 variable is a cast to float32."""
    variable = tf.Variable(tf.ones([3]))
    means = [tf.Variable(tf.zeros([3])) for _ in range(2)]

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(variable, tf.bfloat16) * x)
        gradient = tf.identity(tape.gradient(loss, variable))
        assert gradient.dtype == tf.float32
        norm = global_norm([gradient])
        adam_weight_decay_all(
            [AdamUpdate(variable, *means, gradient, 1.0, None)], 0.1, None, 0.9, 0.999, 1e-6, None
        )
        return norm

    with ops.backend(backend):
        norm = step(tf.constant([1.0, 2.0, 2.0], tf.bfloat16))
    np.testing.assert_allclose(norm, 3.0)
    np.testing.assert_allclose(means[0].numpy(), [0.1, 0.2, 0.2], rtol=1e-6)
    if backend == "native":
        graph = step.get_concrete_function(tf.TensorSpec([3], tf.bfloat16)).graph
        read = [
            tensor.dtype
            for operation in graph.get_operations()
            if operation.type.startswith("BertTf>")
            for tensor in operation.inputs
        ]
        assert read.count(tf.bfloat16) == 2


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
