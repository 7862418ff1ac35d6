"""Every op: its values and gradients, in graphs, files, threads and under XLA, and what it refuses.

A test with the fixture `native_ops` tests the native op; the others test the native op and the
reference implementation, unless their name says otherwise.
"""

import concurrent.futures
import functools
import re

import numpy as np
import pytest
import tensorflow as tf

import configure
from bert_tf import ops
from bert_tf.ops import loading, native
from tests.conformance.op import ROUNDING, assert_near, assert_same_bits, float64, is_float
from tests.conformance.ops import OPS, every_op
from tests.ops.backends import BACKENDS

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
THREADS = 4


@pytest.fixture
def native_ops():
    if BACKENDS == ("reference",):
        pytest.skip("needs the native ops")
    with ops.backend("native"):
        yield


def cases():
    """Every shape in every dtype.

    The reference casts to float32 and back whatever the shape is, so that only the full suite tests
    it in the other dtypes on more than one shape.
    """
    for name, op in OPS.items():
        empty = () if op.only_values else op.empty
        for dtype in ROUNDING:
            for shape in op.shapes + (op.more_shapes + empty) * (dtype == tf.float32):
                sizes = "x".join(map(str, tf.nest.flatten(shape)))
                for backend in BACKENDS:  # one after the other: they share a case
                    is_more = dtype != tf.float32 and shape not in op.shapes[:2][-1:]
                    marks = [pytest.mark.full] if backend == "reference" and is_more else []
                    test_id = f"{name}-{sizes}-{dtype.name}-{backend}"
                    yield pytest.param(name, shape, dtype, backend, id=test_id, marks=marks)


@functools.lru_cache(maxsize=1)
def case(name, shape, dtype):
    """An op, its tensors and the expected result: computed once for both backends."""
    op, tensors = OPS[name].at(shape, dtype)
    return op, tensors, op.expected(tensors)


@pytest.mark.parametrize("name, shape, dtype, backend", list(cases()))
def test_values_and_gradients(name, shape, dtype, backend):
    op, tensors, expected = case(name, shape, dtype)
    with ops.backend(backend):
        y, gradients = op.with_gradients(tensors)
    op.assert_right(tensors, y, gradients, expected)


def signature(op, tensors, unknown):
    """TensorSpecs of tensors with unknown "rows" (their number), "sizes" (all) or "ranks"."""

    def spec(name, tensor):
        shape = tensor.shape.as_list()
        if op.has_rows(name):
            shape[0] = None
        shape = {"rows": shape, "sizes": [None] * len(shape), "ranks": None}[unknown]
        return tf.TensorSpec(shape, tensor.dtype)

    return {n: tf.nest.map_structure(functools.partial(spec, n), t) for n, t in tensors.items()}


@pytest.mark.parametrize(
    "unknown, dtype, backend",
    [
        # The reference casts to float32 and back whatever is known of a shape. Of sizes it knows at
        # least as much as of ranks and at most as much as of rows.
        pytest.param(
            *(unknown, dtype, backend),
            id=f"{unknown}-{dtype.name}-{backend}",
            marks=pytest.mark.full
            if backend == "reference" and (dtype != tf.float32 or unknown == "sizes")
            else (),
        )
        for unknown, dtypes in (
            ("ranks", ROUNDING),
            ("rows", [tf.float32]),
            ("sizes", [tf.float32]),
        )
        for dtype in dtypes
        for backend in BACKENDS
    ],
)
@every_op()
def test_in_a_function_of_unknown_shapes(name, unknown, dtype, backend):
    """The result is right, and its static shape is as complete as it can be."""
    with ops.backend(backend):
        (op, tensors), (_, others) = (OPS[name].at(shape, dtype) for shape in ("small", "fewer"))

        def traced(unknown):
            specs = signature(op, tensors, unknown)
            return tf.function(op.with_gradients, input_signature=[specs], autograph=False)

        if unknown != "rows" and backend == "reference" and "unknown columns" in op.lacks:
            with pytest.raises(ValueError, match=op.lacks["unknown columns"].error):
                traced(unknown)(tensors)
            unknown = "rows"
        function = traced(unknown)
        for given in (tensors, others):
            y, gradients = function(given)
            op.assert_right(given, y, gradients)
        if unknown == "rows":
            inferred = function.get_concrete_function().structured_outputs[0].shape
            assert inferred.as_list() == ([None, *y.shape[1:]] if op.rows else y.shape)


@pytest.fixture(scope="module", params=BACKENDS)
def saved(request, tmp_path_factory):
    """One SavedModel of all ops. Its variables are their vectors; rows and kernels are inputs."""
    path = str(tmp_path_factory.mktemp("ops"))
    module = tf.Module()
    module.functions, module.kept = {}, {}

    def add(name):
        op, tensors = OPS[name].at("small")
        kernels = [n for n, tensor in tensors.items() if isinstance(tensor, tuple)]
        fed = {n: tensors.pop(n) for n in list(tensors) if op.has_rows(n) or n in kernels}
        module.kept[name] = [tf.Variable(tensor) for tensor in tensors.values()]
        specs = signature(op, fed, "rows")

        @tf.function(input_signature=[specs], autograph=False)
        def function(fed):
            return op({**fed, **dict(zip(tensors, module.kept[name]))})

        module.functions[name] = function
        return op, fed, list(tensors)

    with ops.backend(request.param):
        arguments = {name: add(name) for name, op in OPS.items() if not op.only_values}
        tf.saved_model.save(module, path)
    return tf.saved_model.load(path), arguments


@every_op()
def test_saved_model_is_differentiable_after_loading(name, saved):
    loaded, arguments = saved
    op, fed, kept = arguments[name]
    tensors = {**fed, **dict(zip(kept, loaded.kept[name]))}
    y, gradients = op.with_gradients(tensors, lambda **_: loaded.functions[name](fed))
    op.assert_right(tensors, y, gradients)


def assert_alike(backend, received, expected, bounds):
    """Asserts equal bits for the native op, nearly equal numbers for the reference.

    The stock reductions of the reference may depend on the number of rows.
    """
    if backend == "native":
        assert_same_bits(received, expected)
    else:
        assert_near(received, float64(expected), expected.dtype, bounds)


@on_every_backend
@every_op("rows", "rows alone")
def test_a_row_does_not_depend_on_the_others(name, backend):
    """A row alone (for attention, a sequence) gives what it gives in the batch."""
    with ops.backend(backend):
        op, tensors = OPS[name].at("large")
        y = op(tensors)
        parts = op.parts(tensors)
        for i in (0, len(parts) // 2, len(parts) - 1):
            assert_alike(backend, op(op.alone(tensors, i)), y[parts[i]], op.bounds)


@on_every_backend
@every_op("rows")
def test_what_is_not_finite_or_huge_stays_in_its_row(name, backend):
    """In the result and in the gradients; for attention, it stays in its sequence."""
    with ops.backend(backend):
        op, tensors = OPS[name].at("large")
        clean, clean_gradients = op.with_gradients(tensors)
        part = op.parts(tensors)[1]
        others = np.delete(np.arange(len(clean)), part)
        x = op.rows[0]
        values = [(x, value) for value in (np.nan, np.inf, -np.inf, 1e30)]
        for source, value in [*values, (op.rows[-1], np.nan)]:
            numbers = tensors[source].numpy()
            numbers[part][0].flat[-1] = value
            y, gradients = op.with_gradients({**tensors, source: tf.constant(numbers)})
            spreads = op.spreads_nan if np.isnan(value) else op.spreads_infinity
            if source == x and spreads and not np.isfinite(value):
                assert np.isnan(y[part]).all()
            elif np.isnan(value) or value == np.inf:  # GELU of minus infinity is zero
                assert not np.isfinite(y[part]).all()
            pairs = [(y, clean, op.bounds)]
            pairs += [
                (gradients[n], clean_gradients[n], op.gradient_bounds)
                for n in op.rows
                if n in gradients
            ]
            for received, expected, bounds in pairs:
                assert_alike(
                    backend, tf.gather(received, others), tf.gather(expected, others), bounds
                )


@every_op()
def test_runs_are_equal_bit_for_bit(name, native_ops):
    """Several runs at the same time in threads, eager and in sessions, equal a run alone."""
    op, tensors = OPS[name].at("large")
    arrays = [tensor.numpy() for tensor in tf.nest.flatten(tensors)]

    def run_eagerly():
        with ops.backend("native"):
            return tf.nest.map_structure(lambda tensor: tensor.numpy(), op.with_gradients(tensors))

    def run_in_session():
        with ops.backend("native"), tf.Graph().as_default(), tf.compat.v1.Session() as session:
            fed = tf.nest.map_structure(
                lambda tensor: tf.compat.v1.placeholder(tensor.dtype, tensor.shape), tensors
            )
            results = op.with_gradients(fed)
            return session.run(results, dict(zip(tf.nest.flatten(fed), arrays)))

    expected = run_eagerly()
    with concurrent.futures.ThreadPoolExecutor(THREADS) as threads:
        runs = [threads.submit(run) for run in [run_eagerly, run_in_session] * 2]
        for run in runs:
            assert_same_bits(run.result(), expected)


@every_op()
def test_buffers_are_reused_without_harm(name, native_ops):
    """The op may overwrite an input that nothing else reads, and no other."""
    op, tensors = OPS[name].at("large")

    def scaled(factor):
        return {**tensors, **{n: tensors[n] * factor for n in op.rows or tensors}}

    @tf.function(autograph=False)
    def run():
        living = scaled(4.0)
        return op(scaled(0.5)), op.with_gradients(scaled(2.0)), op(living), living

    in_place, with_gradients, of_living, living = run()
    assert_same_bits(living, scaled(4.0))
    assert_same_bits(in_place, op(scaled(0.5)))
    assert_same_bits(with_gradients, op.with_gradients(scaled(2.0)))
    assert_same_bits(of_living, op(scaled(4.0)))


def off_the_boundary(tensor) -> np.ndarray:
    """The tensor as an array whose memory is aligned to a single number only."""
    array = tensor.numpy()
    space = np.empty(array.size + 65, array.dtype)
    start = -space.ctypes.data % 64 // array.itemsize + 1
    place = space[start : start + array.size].reshape(array.shape)
    place[...] = array
    return place


def slice_of_a_variable(tensor) -> tf.Tensor:
    values = tf.reshape(tensor, [-1, *tensor.shape[1:]])
    return tf.reshape(tf.Variable(tf.concat([values[:1], values], 0))[1:], tensor.shape)


@on_every_backend
@every_op()
def test_takes_arrays_variables_slices_and_lists(name, backend):
    with ops.backend(backend):
        op, tensors = OPS[name].at("small")
        y = op(tensors)
        for convert in (off_the_boundary, tf.Variable, slice_of_a_variable):
            assert_same_bits(op(tf.nest.map_structure(convert, tensors)), y)
        # Lists get the dtype of the first tensor, so kernels in bfloat16 are no lists.
        lists = {
            n: t if isinstance(t, tuple) or t.dtype == tf.bfloat16 else t.numpy().tolist()
            for n, t in tensors.items()
        }
        assert_same_bits(op(lists), y)


@on_every_backend
@every_op()
def test_errors_say_what_was_expected_and_received(name, backend):
    op, tensors = OPS[name].at("small")
    numbers = [n for n, tensor in tensors.items() if is_float(tensor)]
    first = numbers[0]

    def refused(error, expected, name, tensor, received):
        message = rf"{expected}.*Received: .*{received}"
        with ops.backend(backend), pytest.raises(error, match=message):
            op({**tensors, name: tensor})

    types = "float32, bfloat16 or float16"
    refused(TypeError, f"`{first}` must have dtype {types}", first,
            tf.cast(tensors[first], tf.float64), f"{first}.dtype=float64")  # fmt: skip
    refused(ValueError, f"`{first}` must .*", first, tf.constant(0.0), rf"{first}.shape=\(\)")
    for other in numbers[1:]:
        tensor = tensors[other]
        has_own_type = tensor.dtype != tensors[first].dtype
        expected = "bfloat16" if has_own_type else f"the dtype of `{first}`, float32"
        refused(TypeError, f"`{other}` must have .*{expected}", other,
                tf.cast(tensor, tf.float16), f"{other}.dtype=float16")  # fmt: skip
        longer = tf.zeros([*tensor.shape[:-1], tensor.shape[-1] + 1], tensor.dtype)
        for wrong in (longer, tensor[tf.newaxis], tf.zeros([], tensor.dtype)):
            shape = re.escape(str(wrong.shape))
            expected = f"`{other}` must .*{op.says.get(other, tensor.shape[-1])}"
            refused(ValueError, expected, other, wrong, f"{other}.shape={shape}")
    for changed, other, tensor in different_rows(op, tensors):
        received = re.escape(str({**tensors, changed: tensor}[other].shape))
        refused(ValueError, f"`{other}` must .*", changed, tensor, f"{other}.shape={received}")


def different_rows(op, tensors):
    """Changes after which one tensor has fewer rows than another, or a single one.

    Yields:
        The tensor that is changed, the one that the error is about, and the new value.
    """
    for other in op.rows[1:]:
        for changed in (op.rows[0], other):
            for rows in (slice(-1), slice(1)):
                yield changed, other, tensors[changed][rows]


@every_op(where=lambda op: len(op.rows) > 1)
def test_different_numbers_of_rows_are_refused_when_a_graph_runs(name, native_ops):
    op, tensors = OPS[name].at("small")
    function = tf.function(op, input_signature=[signature(op, tensors, "ranks")], autograph=False)
    for changed, other, tensor in different_rows(op, tensors):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"`{other}` must .*Received: "):
            function({**tensors, changed: tensor})


@every_op(where=lambda op: "gradient" in op.lacks)
def test_what_has_no_gradient_says_so(name, native_ops):
    op, tensors = OPS[name].at("small")
    x = next(iter(tensors.values()))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = op(tensors)
    error = op.lacks["gradient"].error
    message = f"`{op.function.__name__}` must be used for inference only.*{error}"
    with pytest.raises(LookupError, match=message):
        tape.gradient(y, x)


@every_op("reference under XLA")
def test_the_reference_under_xla(name):
    op, tensors = OPS[name].at("small")
    compiled = tf.function(
        lambda tensors: op.with_gradients(tensors, op.reference), jit_compile=True
    )
    op.assert_right(tensors, *compiled(tensors))


@pytest.mark.parametrize(
    "dtype",
    [pytest.param(d, marks=pytest.mark.full if d == tf.float16 else ()) for d in ROUNDING],
    ids=lambda dtype: dtype.name,
)
@every_op()
def test_the_native_op_under_xla_gives_the_same_bits(name, dtype, native_ops):
    if not configure.has_xla_headers():
        pytest.skip("needs a TensorFlow with the headers of XLA")
    assert native.compiles_under_xla(), loading.load().reason
    op, tensors = OPS[name].at("large", dtype)
    assert_same_bits(
        tf.function(op.with_gradients, jit_compile=True)(tensors), op.with_gradients(tensors)
    )
