"""quantized_dense, native and reference, against int64 and float64.

All numbers of rows, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/quantized_dense_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.gelu_float64 import gelu
from tests.ops.layer_norm_float64 import residual_layer_norm

EPSILON = 1e-12
SMALLEST_SPAN = 2.0**-100
# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}
DTYPES = list(ROUNDING)
SHAPES = [(1, 3, 5), (7, 64, 96), (40, 515, 33), (3, 768, 130), (300, 41, 64), (2, 3073, 7)]
# What follows the matmul: activation, residual, LayerNorm.
EPILOGUES = [
    (None, False, False),
    ("gelu", False, False),
    ("gelu_new", False, False),
    (None, True, False),
    (None, False, True),
    (None, True, True),
]

backends = pytest.mark.parametrize("backend", BACKENDS)


def _inputs(shape, dtype=tf.float32, seed=0, **chosen):
    """x, the quantized kernel's integers and scale, the keyword arguments that are tensors."""
    rows, depth, units = shape
    random = np.random.default_rng(seed)

    def normal(*shape, mean=0.0, scale=1.0):
        return tf.cast(random.normal(size=shape) * scale + mean, dtype)

    tensors = {}
    if chosen.get("bias"):
        tensors["bias"] = normal(units)
    if chosen.get("residual"):
        tensors["residual"] = normal(rows, units)
    if chosen.get("layer_norm"):
        tensors["gamma"] = normal(units, mean=1.0, scale=0.3)
        tensors["beta"] = normal(units, scale=0.3)
    values, scale = ops.quantize_kernel(random.normal(size=(depth, units)) * depth**-0.5)
    return normal(rows, depth, mean=0.4), values, scale, tensors


def _float64(tensor):
    return None if tensor is None else tf.cast(tensor, tf.float64).numpy()


def _quantized(x, smoothing=None):
    """The formula of custom_ops/kernels/quantized_dense.h on a float32 matrix."""
    x = tf.cast(x, tf.float32).numpy()
    if smoothing is not None:
        x = x * smoothing
    least = np.minimum(x.min(axis=1, initial=0.0), 0.0).astype(np.float64)[:, None]
    span = np.maximum(x.max(axis=1, initial=0.0), 0.0).astype(np.float64)[:, None] - least
    counts = span >= SMALLEST_SPAN
    step = np.where(counts, span, 1.0) / 255.0
    zero = np.where(counts, np.rint(-least / step), 0.0).astype(np.int64)
    u = np.rint(x * (1.0 / step).astype(np.float32)).astype(np.int64) + zero
    u = np.where(counts, np.clip(u, 0, 255), 0)
    return u - zero, np.where(counts, step, 0.0).astype(np.float32)


def _products(x, values, scale, smoothing=None):
    """x W as the integers say: float32, rounded as the op documents it."""
    u, row_scale = _quantized(x, smoothing)
    sums = u @ values.numpy().astype(np.int64)
    assert np.abs(sums).max(initial=0) < 2**31
    return sums, sums.astype(np.float32) * scale.numpy() * row_scale


def _expected(x, values, scale, tensors, activation=None):
    tensors = {name: _float64(tensor) for name, tensor in tensors.items()}
    z = _products(x, values, scale)[1].astype(np.float64)
    if "gamma" in tensors:
        y, _ = residual_layer_norm(
            z,
            tensors.get("residual"),
            tensors.get("bias"),
            tensors["gamma"],
            tensors["beta"],
            EPSILON,
        )
        return y
    z += tensors.get("bias", 0.0)
    if activation is not None:
        z = gelu(z, approximate=activation == "gelu_new")
    return z + tensors.get("residual", 0.0)


@backends
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_integers_are_exact(backend, shape):
    x, values, scale, _ = _inputs(shape)
    with ops.backend(backend):
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, scale), shape[-1])
    np.testing.assert_array_equal(y, _products(x, values, scale)[1])


@backends
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_smoothed_integers_are_exact(backend, shape, dtype):
    x, values, scale, _ = _inputs(shape, dtype)
    smoothing = np.random.default_rng(5).lognormal(size=shape[1]).astype(np.float32)
    with ops.backend(backend):
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, scale, smoothing), shape[-1])
    expected = _products(x, values, scale, smoothing)[1]
    np.testing.assert_array_equal(y, tf.cast(expected, dtype))


@backends
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


@backends
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


@backends
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES[:5], ids=str)
@pytest.mark.parametrize(("activation", "residual", "layer_norm"), EPILOGUES)
def test_values(backend, shape, dtype, activation, residual, layer_norm):
    x, values, scale, tensors = _inputs(
        shape, dtype, bias=True, residual=residual, layer_norm=layer_norm
    )
    with ops.backend(backend):
        kernel = ops.pack_quantized_dense(values, scale)
        y = ops.quantized_dense(x, kernel, shape[-1], activation=activation, **tensors)
    assert y.dtype == dtype
    assert y.shape == (shape[0], shape[-1])
    np.testing.assert_allclose(
        _float64(y),
        _expected(x, values, scale, tensors, activation),
        rtol=ROUNDING[dtype] + 1e-6,
        atol=1e-5,
    )


@backends
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
    for k in range(depth):
        for j in range(0, units, 7):
            place = ((j // 32 * quads + k // 4) * 32 + j % 32) * 4 + k % 4
            assert kernel.packed[place] == values[k, j]
    np.testing.assert_array_equal(kernel.column_sums, values.astype(int).sum(axis=0))
    np.testing.assert_array_equal(ops.unpack_quantized_dense(kernel.packed, *shape), values)


@backends
@pytest.mark.parametrize(("rows", "depth", "units"), [(0, 5, 7), (4, 0, 7), (4, 5, 0)])
def test_empty(backend, rows, depth, units):
    kernel = ops.pack_quantized_dense(*ops.quantize_kernel(tf.zeros([depth, units])))
    bias = tf.range(units, dtype=tf.float32)
    with ops.backend(backend):
        y = ops.quantized_dense(tf.ones([rows, depth]), kernel, units, bias=bias)
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(units), (rows, units)))


@backends
def test_special_values_stay_in_their_rows(backend):
    x, values, scale, tensors = _inputs((12, 50, 37), bias=True)
    x = x.numpy()
    x[3] = 0.0
    x[4] = 1e-35  # counts as zeros
    x[5, ::2], x[5, 1::2] = 3e38, -3e38  # wider than float32
    with ops.backend(backend):
        kernel = ops.pack_quantized_dense(values, scale * 1e-3)
        clean = ops.quantized_dense(x, kernel, 37, **tensors).numpy()
        np.testing.assert_allclose(
            clean, _expected(x, values, scale * 1e-3, tensors), rtol=1e-5, atol=1e-6
        )
        np.testing.assert_array_equal(clean[3], tensors["bias"])
        np.testing.assert_array_equal(clean[4], tensors["bias"])
        assert np.isfinite(clean).all()
        x[7, 49], x[8, 0], x[9, 20] = np.nan, np.inf, -np.inf
        y = ops.quantized_dense(x, kernel, 37, **tensors).numpy()
        huge = ops.quantized_dense(
            x, kernel._replace(smoothing=tf.fill([50], 2.0)), 37, **tensors
        ).numpy()
    np.testing.assert_array_equal(np.isnan(huge).all(axis=1), np.isnan(huge).any(axis=1))
    assert np.flatnonzero(np.isnan(huge[:, 0])).tolist() == [5, 7, 8, 9]  # 5 overflows
    special = np.isin(np.arange(12), [7, 8, 9])
    assert np.isnan(y[special]).all()
    np.testing.assert_array_equal(y[~special], clean[~special])


@backends
def test_rows_do_not_depend_on_each_other(backend):
    x, values, scale, tensors = _inputs((130, 300, 70), bias=True, residual=True, layer_norm=True)
    residual = tensors.pop("residual")
    kernel = ops.pack_quantized_dense(values, scale)
    with ops.backend(backend):
        y = ops.quantized_dense(x, kernel, 70, residual=residual, **tensors)
        for i in (0, 17, 129):
            row = slice(i, i + 1)
            alone = ops.quantized_dense(x[row], kernel, 70, residual=residual[row], **tensors)
            if backend == "native":
                np.testing.assert_array_equal(alone, y[row])
            else:  # stock LayerNorm promises nothing; the integers do not depend on the rows
                np.testing.assert_allclose(alone, y[row], atol=1e-6)


@backends
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_graph_of_unknown_shapes(backend, dtype):
    x, values, scale, tensors = _inputs((6, 70, 40), dtype, residual=True, layer_norm=True)
    expected = _expected(x, values, scale, tensors)
    kernel = ops.pack_quantized_dense(values, scale)
    for shape in [[None, 70]] if backend == "reference" else [[None, 70], [None, None], None]:
        with ops.backend(backend):

            @tf.function(input_signature=[tf.TensorSpec(shape, dtype)])
            def run(x):
                return ops.quantized_dense(x, kernel, 40, **tensors)

            y = run(x)
        np.testing.assert_allclose(_float64(y), expected, rtol=ROUNDING[dtype], atol=1e-5)


@backends
def test_residual_buffer_is_reused_without_harm(backend):
    x, values, scale, tensors = _inputs((64, 64, 96), bias=True, residual=True)
    residual = tensors.pop("residual")
    kernel = ops.pack_quantized_dense(values, scale)
    with ops.backend(backend):

        @tf.function
        def run(x, residual):
            doubled = residual * 2.0
            y = ops.quantized_dense(x, kernel, 96, residual=residual * 3.0, **tensors)
            z = ops.quantized_dense(x, kernel, 96, residual=doubled, **tensors)
            return y, z, doubled

        y, z, doubled = run(x, residual)
    base = _expected(x, values, scale, tensors)
    np.testing.assert_allclose(y, base + 3.0 * _float64(residual), atol=1e-5)
    np.testing.assert_allclose(z, base + 2.0 * _float64(residual), atol=1e-5)
    np.testing.assert_array_equal(doubled, 2.0 * _float64(residual))


@backends
def test_under_xla(backend):
    if backend == "native" and not ops.native.compiles_under_xla():
        return  # models are traced with the twin there
    x, values, scale, tensors = _inputs((6, 700, 40), bias=True)
    kernel = ops.pack_quantized_dense(values, scale)
    with ops.backend(backend):
        run = tf.function(
            lambda x: ops.quantized_dense(x, kernel, 40, activation="gelu", **tensors),
            jit_compile=True,
        )
        y = run(x)
    np.testing.assert_allclose(y, _expected(x, values, scale, tensors, "gelu"), atol=1e-5)


@backends
def test_gradient(backend):
    if backend == "reference":
        return  # rounding has gradient zero; models refuse to train
    x, values, scale, _ = _inputs((5, 40, 33))
    with tf.GradientTape() as tape, ops.backend(backend):
        tape.watch(x)
        y = ops.quantized_dense(x, ops.pack_quantized_dense(values, scale), 33)
    with pytest.raises(LookupError, match="inference only"):
        tape.gradient(y, x)


@backends
def test_errors_say_what_was_expected_and_received(backend):
    kernel = ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([5]))

    def refused(match, error=ValueError, x=None, kernel=kernel, units=5, **arguments):
        with ops.backend(backend), pytest.raises(error, match=match):
            ops.quantized_dense(tf.zeros([4, 3]) if x is None else x, kernel, units, **arguments)

    refused(r"x of shape \[M, K\]. Received: .*\(3,\)", x=tf.zeros([3]))
    refused(r"packed of shape \[256\].*Received: .*\(128,\)", x=tf.zeros([4, 5]))
    refused(r"packed of shape \[256\].*units=33", units=33)
    refused(r"scale of shape \[6\].*\(5,\)", units=6)
    refused(r"residual of shape \[4, 5\].*\(3, 5\)", residual=tf.zeros([3, 5]))
    refused("only gamma", gamma=tf.zeros([5]))
    refused("None, 'gelu' or 'gelu_new'.*'relu'", activation="relu")
    refused("at most 65536 columns", x=tf.zeros([1, 65537]))
    refused(
        "packed int8.*Received: int32",
        TypeError,
        kernel=kernel._replace(packed=tf.cast(kernel.packed, tf.int32)),
    )
    with pytest.raises(TypeError, match="int8.*Received: int32"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int32), tf.zeros([5]))
    with pytest.raises(ValueError, match=r"\[units\].*\(4,\)"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([4]))
    with pytest.raises(ValueError, match=r"smoothing of shape \[K\].*\(5,\)"):
        ops.pack_quantized_dense(tf.zeros([3, 5], tf.int8), tf.zeros([5]), tf.zeros([5]))
    refused(r"smoothing of shape \[3\].*\(5,\)", kernel=kernel._replace(smoothing=tf.ones([5])))


@backends
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packed": [129]}, r"packed to have shape \[128\].*Received: packed of shape \[129\]"),
        ({"x": [4, 3, 1]}, r"x to have shape \[M, K\]. Received: x of shape \[4,3,1\]"),
        ({"scale": [6]}, r"scale .*to have shape \[5\].*scale of shape \[6\]"),
        ({"column_sums": [6]}, r"column_sums to have shape \[5\].*column_sums of shape \[6\]"),
        ({"smoothing": [5]}, r"smoothing to have shape \[3\].*smoothing of shape \[5\]"),
        ({"bias": [6]}, r"bias to have shape \[5\].*bias of shape \[6\]"),
        ({"residual": [4, 6]}, r"residual to have (the )?shape .*residual of shape \[4,6\]"),
        ({"x": [1, 65537], "packed": [65540 * 32]}, "at most 65536 columns"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_op_itself_refuses_what_does_not_fit(backend, arguments, message):
    if backend == "reference":
        return  # the op has no part in it
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
            x, packed, scale, column_sums, smoothing, [bias], [residual], [], [], units=5
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.zeros)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        run(lambda shape, dtype: tf.compat.v1.placeholder(dtype, shape))
