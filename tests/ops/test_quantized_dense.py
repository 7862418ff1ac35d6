"""quantized_dense, native and reference: its integers, packing and errors. What every op must do is
in tests/conformance/test_ops.py.

All numbers of rows, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/dense/quantized_dense_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.dense_float64 import QUAD, quantized_product, word_packed_places

DTYPES = [tf.float32, tf.bfloat16, tf.float16]
SHAPES = [(1, 3, 5), (7, 64, 96), (40, 515, 33), (3, 768, 130), (300, 41, 64), (2, 3073, 7)]

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
needs_native = pytest.mark.skipif("native" not in BACKENDS, reason="needs the native ops")


def _inputs(shape, dtype=tf.float32):
    """x and the quantized kernel's integers and scale."""
    rows, depth, units = shape
    random = np.random.default_rng(0)
    values, scale = ops.quantize_kernel(random.normal(size=(depth, units)) * depth**-0.5)
    return tf.cast(random.normal(size=(rows, depth)) + 0.4, dtype), values, scale


@on_every_backend
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_integers_are_exact(backend, shape):
    x, values, scale = _inputs(shape)
    with ops.backend(backend):
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, scale), shape[-1])
    np.testing.assert_array_equal(y, quantized_product(x, values, scale, 1.0))


@on_every_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_smoothed_integers_are_exact(backend, shape, dtype):
    x, values, scale = _inputs(shape, dtype)
    smoothing = np.random.default_rng(5).lognormal(size=shape[1]).astype(np.float32)
    with ops.backend(backend):
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, scale, smoothing), shape[-1])
    expected = quantized_product(tf.cast(x, tf.float32), values, scale, smoothing)
    np.testing.assert_array_equal(y, tf.cast(expected, dtype))


STATIC_SCALE = np.array([0.0123, 93.0], np.float32)  # clamps a few numbers of x


@on_every_backend
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(7, 64, 96), (40, 515, 33), (2, 3073, 7)], ids=str)
def test_integers_of_a_static_scale_are_exact(backend, shape, dtype):
    x, values, scale = _inputs(shape, dtype)
    smoothing = np.random.default_rng(5).lognormal(size=shape[1]).astype(np.float32)
    kernel = ops.pack_quantized_dense(values, scale, smoothing, STATIC_SCALE)
    with ops.backend(backend):
        y = ops.quantized_dense(x, kernel, shape[-1])
    rows = tf.cast(x, tf.float32)
    expected = quantized_product(rows, values, scale, smoothing, STATIC_SCALE)
    np.testing.assert_array_equal(y, tf.cast(expected, dtype))


@on_every_backend
def test_a_static_scale_keeps_special_values_in_their_rows(backend):
    x, values, scale = _inputs((5, 50, 37))
    x = x.numpy()
    x[1] = 0.0
    x[2, 3], x[3, 49], x[4, ::2] = np.nan, -np.inf, 3e38
    kernel = ops.pack_quantized_dense(values, scale, static_scale=STATIC_SCALE)
    with ops.backend(backend):
        y = ops.quantized_dense(x, kernel, 37).numpy()
    assert np.isnan(y).all(axis=1).tolist() == [False, False, True, True, False]
    assert np.isfinite(y[[0, 1, 4]]).all() and not y[1].any()


@needs_native
@pytest.mark.parametrize("static_scale", [(0.0, 1.0), (np.nan, 1.0), (np.inf, 1.0), (1.0, 2.5),
                                          (1.0, -1.0), (1.0, 256.0), (1.0, np.nan)])  # fmt: skip
def test_a_static_scale_must_be_one(static_scale):
    x, values, scale = _inputs((2, 5, 3))
    kernel = ops.pack_quantized_dense(values, scale, static_scale=static_scale)
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 2\\^-100.*Received: scale="):
        ops.quantized_dense(x, kernel, 3)


@on_every_backend
def test_a_static_scale_has_two_numbers(backend):
    x, values, scale = _inputs((2, 5, 3))
    kernel = ops.pack_quantized_dense(values, scale, static_scale=[1.0])
    with ops.backend(backend), pytest.raises(ValueError, match=r"static_scale.*\[2\].*\(1,\)"):
        ops.quantized_dense(x, kernel, 3)


@on_every_backend
def test_smoothing_keeps_the_product_and_saves_small_columns(backend):
    random = np.random.default_rng(6)
    x, kernel = random.normal(size=(50, 256)), random.normal(size=(256, 40)) / 16
    x[:, 7] *= 500.0
    smoothing = np.ones([256], np.float32)
    smoothing[7] = 1 / 50
    errors = []
    for s in (None, smoothing):
        with ops.backend(backend):
            packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel, s), s)
            y = ops.quantized_dense(x.astype(np.float32), packed, 40).numpy()
        errors.append(np.sqrt(np.mean((y - x @ kernel) ** 2)))
    assert errors[1] < 0.4 * errors[0]


@on_every_backend
def test_sums_above_what_float32_holds_are_exact(backend):
    x = np.full([2, 3072], 255.0, np.float32)
    x[:, 0] = 254.0
    x[1, 1::2] = 0.0
    values = np.full([3072, 3], 127, np.int8)
    values[:, 1] = -127
    values[::2, 2] = -127
    with ops.backend(backend):
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, tf.ones([3])), 3)
    sums = x.astype(np.int64) @ values
    assert np.abs(sums).max() > 2**24
    np.testing.assert_array_equal(y, sums.astype(np.float32))


@on_every_backend
def test_close_to_the_product_itself(backend):
    random = np.random.default_rng(1)
    x, kernel = random.normal(size=(50, 768)), random.normal(size=(768, 100)) / 768**0.5
    with ops.backend(backend):
        packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel))
        y = ops.quantized_dense(x.astype(np.float32), packed, 100).numpy()
    # Rounding errors are uniform: a step's is step / sqrt(12), and 768 terms of it add up.
    assert np.sqrt(np.mean((y - x @ kernel) ** 2)) < 0.015
    assert np.sqrt(np.mean((y - x @ kernel) ** 2)) > 0.001  # it is not float32 in disguise


def test_quantize_kernel():
    random = np.random.default_rng(2)
    kernel = random.normal(size=(50, 6)).astype(np.float32) * 10.0 ** np.arange(-3, 3)
    kernel[:, 2] = 0.0
    smoothing = random.lognormal(size=50).astype(np.float32)
    smoothed, smoothed_scale = ops.quantize_kernel(kernel, smoothing)
    back = smoothed.numpy() * smoothed_scale.numpy()
    assert np.all(np.abs(back - kernel / smoothing[:, None]) <= 0.5001 * smoothed_scale.numpy())
    values, scale = (part.numpy() for part in ops.quantize_kernel(kernel))
    assert values.dtype == np.int8 and np.abs(values.astype(int)).max(axis=0).tolist() == [
        127,
        127,
        0,
        127,
        127,
        127,
    ]
    assert np.all(np.abs(values * scale - kernel) <= 0.5001 * scale)
    assert scale[2] == 0.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="finite"):
        ops.quantize_kernel(np.array([[1.0, np.inf]]))
    with pytest.raises(ValueError, match=r"matrix.*\(3,\)"):
        ops.quantize_kernel(tf.zeros([3]))


@pytest.mark.parametrize("shape", [(1, 1), (4, 32), (5, 33), (70, 100), (0, 3), (3, 0)], ids=str)
def test_packing(shape):
    depth, units = shape
    values = np.random.default_rng(3).integers(-127, 128, shape).astype(np.int8)
    kernel = ops.pack_quantized_dense(values, tf.ones([units]))
    quads = -(-depth // 4)
    assert kernel.packed.shape == [4 * quads * (-(-units // 32) * 32)]
    places = word_packed_places(depth, units, QUAD)
    np.testing.assert_array_equal(kernel.packed.numpy()[places], values)
    np.testing.assert_array_equal(kernel.column_sums, values.astype(int).sum(axis=0))
    np.testing.assert_array_equal(ops.unpack_quantized_dense(kernel.packed, *shape), values)


@on_every_backend
def test_special_values_stay_in_their_rows(backend):
    x, values, scale = _inputs((12, 50, 37))
    x, bias = x.numpy(), np.random.default_rng(1).normal(size=37).astype(np.float32)
    x[3] = 0.0
    x[4] = 1e-35  # counts as zeros
    x[5, ::2], x[5, 1::2] = 3e38, -3e38  # wider than float32
    with ops.backend(backend):
        kernel = ops.pack_quantized_dense(values, scale * 1e-3)
        clean = ops.quantized_dense(x, kernel, 37, bias).numpy()
        expected = np.float64(quantized_product(x, values, scale * 1e-3, 1.0)) + bias
        np.testing.assert_allclose(clean, expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(clean[3], bias)
        np.testing.assert_array_equal(clean[4], bias)
        assert np.isfinite(clean).all()
        x[7, 49], x[8, 0], x[9, 20] = np.nan, np.inf, -np.inf
        y = ops.quantized_dense(x, kernel, 37, bias).numpy()
        huge = ops.quantized_dense(
            x, kernel._replace(smoothing=tf.fill([50], 2.0)), 37, bias
        ).numpy()
    np.testing.assert_array_equal(np.isnan(huge).all(axis=1), np.isnan(huge).any(axis=1))
    assert np.flatnonzero(np.isnan(huge[:, 0])).tolist() == [5, 7, 8, 9]  # 5 overflows
    special = np.isin(np.arange(12), [7, 8, 9])
    assert np.isnan(y[special]).all()
    np.testing.assert_array_equal(y[~special], clean[~special])


@on_every_backend
def test_errors_say_what_was_expected_and_received(backend):
    kernel = ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([5]))

    def refused(match, error=ValueError, x=None, kernel=kernel, units=5, **arguments):
        with ops.backend(backend), pytest.raises(error, match=match):
            ops.quantized_dense(tf.zeros([4, 3]) if x is None else x, kernel, units, **arguments)

    refused(r"`x` must have shape \[M, K\]. Received: .*\(3,\)", x=tf.zeros([3]))
    refused(r"`packed` must have shape \[256\].*Received: .*\(128,\)", x=tf.zeros([4, 5]))
    refused(r"`packed` must have shape \[256\].*units=33", units=33)
    refused(r"`scale` must have shape \[6\].*\(5,\)", units=6)
    refused("beta=None", gamma=tf.zeros([5]))
    refused("None, 'gelu', 'gelu_new' or 'silu'.*'relu'", activation="relu")
    refused("at most 65536 columns", x=tf.zeros([1, 65537]))
    refused(
        r"int8 \(packed\).*Received: kernel.packed.dtype=int32",
        TypeError,
        kernel=kernel._replace(packed=tf.cast(kernel.packed, tf.int32)),
    )
    with pytest.raises(TypeError, match="int8.*Received: values.dtype=int32"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int32), tf.zeros([5]))
    with pytest.raises(ValueError, match=r"\[units\].*\(4,\)"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([4]))
    with pytest.raises(ValueError, match=r"`smoothing` must have shape \[K\].*\(5,\)"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([5]), tf.zeros([5]))
    long = kernel._replace(smoothing=tf.ones([5]))
    refused(r"`smoothing` must have shape \[3\].*\(5,\)", kernel=long)


@needs_native
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packed": [129]}, r"`packed` must have shape \[128\].*Received: packed.shape=\[129\]"),
        ({"x": [4, 3, 1]}, r"`x` must have shape \[M, K\]. Received: x.shape=\[4,3,1\]"),
        ({"scale": [6]}, r"`scale` .*must have shape \[5\].*scale.shape=\[6\]"),
        ({"column_sums": [6]}, r"`column_sums` must have shape \[5\].*column_sums.shape=\[6\]"),
        ({"smoothing": [5]}, r"`smoothing` must have shape \[3\].*smoothing.shape=\[5\]"),
        ({"bias": [6]}, r"`bias` must have shape \[5\].*bias.shape=\[6\]"),
        ({"residual": [4, 6]}, r"`residual` must have (the )?shape .*residual.shape=\[4,6\]"),
        ({"x": [1, 65537], "packed": [65540 * 32]}, "at most 65536 columns"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_op_itself_refuses_what_does_not_fit(arguments, message):
    shapes = {
        "x": [4, 3],
        "packed": [128],
        "scale": [5],
        "column_sums": [5],
        "smoothing": [3],
        "bias": [5],
        "residual": [4, 5],
        **arguments,
    }
    types = {"packed": tf.int8, "column_sums": tf.int32}

    def run(make):
        x, packed, scale, column_sums, smoothing, bias, residual = (
            make(shape, types.get(name, tf.float32)) for name, shape in shapes.items()
        )
        return ops.native.library().bert_tf_quantized_dense(
            x, packed, scale, column_sums, smoothing, [bias], [residual], [], [], [], units=5
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.zeros)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        run(lambda shape, dtype: tf.compat.v1.placeholder(dtype, shape))


@needs_native
def test_graphs_of_versions_without_static_scales():
    x, values, scale = _inputs((4, 20, 9))
    kernel = ops.pack_quantized_dense(values, scale)
    with tf.Graph().as_default() as graph, ops.backend("native"):
        ops.quantized_dense(x.numpy(), [part.numpy() for part in kernel], 9)
    graph_def = graph.as_graph_def()
    (node,) = (node for node in graph_def.node if node.op == "BertTf>QuantizedDense")
    del node.input[-1], node.attr["num_static"]
    y = tf.compat.v1.wrap_function(lambda: tf.import_graph_def(graph_def, name=""), []).prune(
        [], f"{node.name}:0"
    )()
    np.testing.assert_array_equal(y, ops.quantized_dense(x, kernel, 9))
