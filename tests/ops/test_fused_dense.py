"""fused_dense and pack_dense, native and reference, against float64.

All numbers of rows, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/fused_dense_test.cc.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS
from tests.ops.gelu_float64 import gelu
from tests.ops.layer_norm_float64 import residual_layer_norm

EPSILON = 1e-12
# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}
DTYPES = list(ROUNDING)
SHAPES = [(1, 3, 5), (7, 64, 96), (40, 515, 33), (3, 768, 130), (300, 40, 64)]  # M, K, units
# What follows the matmul: activation, residual, LayerNorm.
EPILOGUES = [
    (None, False, False),
    ("gelu", False, False),
    ("gelu_new", False, False),
    (None, True, False),
    (None, False, True),
    (None, True, True),
]

pytestmark = pytest.mark.parametrize("backend", BACKENDS)


def _inputs(shape, dtype, has_bias=True, has_residual=False, layer_norm=False, seed=0):
    """x, the kernel, and the keyword arguments of fused_dense that are tensors."""
    rows, depth, units = shape
    random = np.random.default_rng(seed)

    def normal(*shape, mean=0.0, scale=1.0):
        return tf.cast(random.normal(size=shape) * scale + mean, dtype)

    tensors = {}
    if has_bias:
        tensors["bias"] = normal(units)
    if has_residual:
        tensors["residual"] = normal(rows, units)
    if layer_norm:
        tensors["gamma"] = normal(units, mean=1.0, scale=0.3)
        tensors["beta"] = normal(units, scale=0.3)
    return normal(rows, depth), normal(depth, units, scale=depth**-0.5), tensors


def _float64(tensor):
    return None if tensor is None else tf.cast(tensor, tf.float64).numpy()


def _expected(x, kernel, tensors, activation=None):
    values = {name: _float64(tensor) for name, tensor in tensors.items()}
    z = _float64(x) @ _float64(kernel)
    if "gamma" in values:
        y, _ = residual_layer_norm(
            z, values.get("residual"), values.get("bias"), values["gamma"], values["beta"], EPSILON
        )
        return y
    z += values.get("bias", 0.0)
    if activation is not None:
        z = gelu(z, approximate=activation == "gelu_new")
    return z + values.get("residual", 0.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("activation", "has_residual", "layer_norm"), EPILOGUES)
def test_values(backend, shape, dtype, activation, has_residual, layer_norm):
    for has_bias in (False, True):
        x, kernel, tensors = _inputs(shape, dtype, has_bias, has_residual, layer_norm)
        with ops.backend(backend):
            packed = ops.pack_dense(kernel)
            y = ops.fused_dense(x, packed, shape[-1], activation=activation, **tensors)
        assert y.dtype == dtype
        assert y.shape == (shape[0], shape[-1])
        np.testing.assert_allclose(
            _float64(y),
            _expected(x, kernel, tensors, activation),
            rtol=ROUNDING[dtype] + 1e-6,
            atol=1e-5,
        )


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [(1, 1), (3, 32), (256, 5), (257, 33), (1000, 70)], ids=str)
def test_every_pack_is_the_same(backend, shape, dtype):
    kernel = tf.cast(np.random.default_rng(0).normal(size=shape), dtype)
    with ops.backend(backend):
        packed = ops.pack_dense(kernel)
        transposed = ops.pack_dense(tf.transpose(kernel), transposed=True)
    expected = ops.pack_dense_reference(kernel)
    assert packed.shape == [shape[0] * -(-shape[1] // 32) * 32]
    np.testing.assert_array_equal(_float64(packed), _float64(expected))
    np.testing.assert_array_equal(_float64(transposed), _float64(expected))


def test_gradient_matmul_by_the_transpose(backend):
    dy, kernel, _ = _inputs((9, 48, 20), tf.float32)  # dy [M, units], W [K, units] is [20, 48]
    kernel = tf.transpose(kernel)
    with ops.backend(backend):
        dx = ops.fused_dense(dy, ops.pack_dense(kernel, transposed=True), units=20)
    np.testing.assert_allclose(dx, _float64(dy) @ _float64(kernel).T, atol=1e-5)


@pytest.mark.parametrize(("rows", "depth", "units"), [(0, 5, 7), (4, 0, 7), (4, 5, 0)])
def test_empty(backend, rows, depth, units):
    x, kernel, tensors = tf.zeros([rows, depth]), tf.zeros([depth, units]), {}
    tensors["bias"] = tf.range(units, dtype=tf.float32)
    with ops.backend(backend):
        y = ops.fused_dense(x, ops.pack_dense(kernel), units, **tensors)
    np.testing.assert_array_equal(y, np.broadcast_to(np.arange(units), (rows, units)))


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_graph_of_unknown_shapes(backend, dtype):
    x, kernel, tensors = _inputs((6, 70, 40), dtype, has_residual=True, layer_norm=True)
    expected = _expected(x, kernel, tensors)
    shapes = [[None, 70]] if backend == "reference" else [[None, 70], [None, None], None]
    with ops.backend(backend):
        packed = ops.pack_dense(kernel)
        for shape in shapes:

            @tf.function(input_signature=[tf.TensorSpec(shape, dtype), tf.TensorSpec(None, dtype)])
            def run(x, packed):
                return ops.fused_dense(x, packed, 40, **tensors)

            y = run(x, packed)
            np.testing.assert_allclose(_float64(y), expected, rtol=ROUNDING[dtype], atol=1e-5)


def test_residual_buffer_is_reused_without_harm(backend):
    x, kernel, tensors = _inputs((64, 64, 96), tf.float32, has_residual=True)
    residual = tensors.pop("residual")
    with ops.backend(backend):
        packed = ops.pack_dense(kernel)

        @tf.function
        def run(x, residual):
            doubled = residual * 2.0
            y = ops.fused_dense(x, packed, 96, residual=residual * 3.0, **tensors)
            z = ops.fused_dense(x, packed, 96, residual=doubled, **tensors)
            return y, z, doubled

        y, z, doubled = run(x, residual)
    base = _expected(x, kernel, tensors)
    np.testing.assert_allclose(y, base + 3.0 * _float64(residual), atol=1e-5)
    np.testing.assert_allclose(z, base + 2.0 * _float64(residual), atol=1e-5)
    np.testing.assert_array_equal(doubled, 2.0 * _float64(residual))


def test_rows_do_not_depend_on_each_other(backend):
    x, kernel, tensors = _inputs((130, 300, 70), tf.float32, has_residual=True, layer_norm=True)
    residual = tensors.pop("residual")
    with ops.backend(backend):
        packed = ops.pack_dense(kernel)
        y = ops.fused_dense(x, packed, 70, residual=residual, **tensors)
        if backend == "reference":
            return  # stock matmuls promise nothing
        for i in (0, 17, 129):
            row = slice(i, i + 1)
            alone = ops.fused_dense(x[row], packed, 70, residual=residual[row], **tensors)
            np.testing.assert_array_equal(alone, y[row])


def test_nan_stays_in_its_row(backend):
    x, kernel, tensors = _inputs((20, 50, 37), tf.float32)
    x = x.numpy()
    x[11, 49] = np.nan
    with ops.backend(backend):
        y = ops.fused_dense(x, ops.pack_dense(kernel), 37, **tensors).numpy()
    np.testing.assert_array_equal(np.isnan(y).all(-1), np.arange(20) == 11)
    np.testing.assert_array_equal(np.isnan(y).any(-1), np.arange(20) == 11)


def test_saved_model(backend, tmp_path):
    x, kernel, tensors = _inputs((5, 40, 33), tf.float32)
    with ops.backend(backend):
        module = tf.Module()
        module.packed = tf.Variable(ops.pack_dense(kernel))
        module.run = tf.function(
            lambda x: ops.fused_dense(x, module.packed, 33, activation="gelu", **tensors),
            input_signature=[tf.TensorSpec([None, 40], tf.float32)],
        )
        tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))  # owns the variable that run() reads
    y = loaded.run(x)
    np.testing.assert_allclose(y, _expected(x, kernel, tensors, "gelu"), atol=1e-5)


def test_gradient(backend):
    x, kernel, tensors = _inputs((5, 40, 33), tf.float32)
    with ops.backend(backend), tf.GradientTape() as tape:
        packed = ops.pack_dense(kernel)
        tape.watch(x)
        y = ops.fused_dense(x, packed, 33, **tensors)
    if backend == "native":
        with pytest.raises(LookupError, match="no gradient.*backend\\('reference'\\)"):
            tape.gradient(y, x)
    else:
        dx = tape.gradient(y, x)
        expected = np.broadcast_to(_float64(kernel).sum(axis=1), dx.shape)
        np.testing.assert_allclose(dx, expected, atol=1e-5)


def test_errors_say_what_was_expected_and_received(backend):
    x, v = tf.zeros([4, 3]), tf.zeros([5])
    with ops.backend(backend):
        packed = ops.pack_dense(tf.zeros([3, 5]))

        def refused(match, error=ValueError, x=x, packed=packed, units=5, **arguments):
            with pytest.raises(error, match=match):
                ops.fused_dense(x, packed, units, **arguments)

        refused(r"x of shape \[M, K\]. Received: .*\(3,\)", x=tf.zeros([3]))
        refused(r"packed of shape \[128\].*Received: .*\(96,\)", x=tf.zeros([4, 4]))
        refused(r"packed of shape \[192\].*units=33. Received", units=33)
        refused(r"bias of shape \[5\].*Received: bias of shape \(4,\)", bias=tf.zeros([4]))
        refused(r"residual of shape \[4, 5\].*\(3, 5\)", residual=tf.zeros([3, 5]))
        refused(r"gamma of shape \[5\].*\(6,\)", gamma=tf.zeros([6]), beta=v)
        refused("gamma and beta, or neither. Received: only gamma", gamma=v)
        refused("None, 'gelu' or 'gelu_new'.*'relu'", activation="relu")
        refused("no activation together", activation="gelu", residual=tf.zeros([4, 5]))
        refused("Expected epsilon >= 0.*-1.0", gamma=v, beta=v, epsilon=-1.0)
        refused("dtype of x, float32.*bias of dtype float16", TypeError, bias=tf.zeros([5], "half"))
        with pytest.raises(ValueError, match=r"kernel to be a matrix.*\(3, 5, 1\)"):
            ops.pack_dense(tf.zeros([3, 5, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packed": [97]}, r"packed to have shape \[96\].*Received: packed of shape \[97\]"),
        ({"x": [4, 3, 1]}, r"x to have shape \[M, K\]. Received: x of shape \[4,3,1\]"),
        ({"bias": [6]}, r"bias to have shape \[5\].*bias of shape \[6\]"),
        ({"residual": [4, 6]}, r"residual to have (the )?shape .*residual of shape \[4,6\]"),
        ({"gamma": [1, 5]}, r"gamma to have shape \[5\].*gamma of shape \[1,5\]"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_op_itself_refuses_what_does_not_fit(backend, arguments, message):
    if backend == "reference":
        return  # the op has no part in it
    library = ops.native.library()
    shapes = {"x": [4, 3], "packed": [96], "bias": [5], "residual": [4, 5], "gamma": [5]}
    shapes.update(arguments)

    def run(make):
        x, packed, bias, residual, gamma = (make(shape) for shape in shapes.values())
        return library.bert_tf_fused_dense(
            x, packed, [bias], [residual], [gamma], [make([5])], units=5
        )

    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        run(tf.zeros)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        run(lambda shape: tf.compat.v1.placeholder(tf.float32, shape))


def test_shape_functions(backend):
    if backend == "reference":
        return  # the op has no part in it
    library = ops.native.library()
    with tf.Graph().as_default():

        def p(shape):
            return tf.compat.v1.placeholder(tf.float32, shape)

        def dense(x, packed, bias, residual):
            y = library.bert_tf_fused_dense(x, packed, bias, residual, [], [], units=5)
            return y.shape.as_list()

        assert dense(p([4, 3]), p([96]), [], []) == [4, 5]
        assert dense(p(None), p(None), [p(None)], []) == [None, 5]
        assert dense(p([None, 3]), p(None), [], [p([4, None])]) == [4, 5]
        assert library.bert_tf_pack_dense(p([3, 5])).shape == [96]
        assert library.bert_tf_pack_dense(p([5, 3]), transposed=True).shape == [96]
        assert library.bert_tf_pack_dense(p([None, 5])).shape.as_list() == [None]
        with pytest.raises(ValueError, match=r"kernel to be a matrix.*\[5\]"):
            library.bert_tf_pack_dense(p([5]))


@pytest.mark.parametrize("activation", [None, "gelu"])
def test_twin_under_xla(backend, activation):
    del backend
    x, kernel, tensors = _inputs((6, 300, 40), tf.float32)
    packed = ops.pack_dense_reference(kernel)

    @tf.function(jit_compile=True)
    def run(x):
        return ops.fused_dense_reference(x, packed, 40, activation=activation, **tensors)

    np.testing.assert_allclose(run(x), _expected(x, kernel, tensors, activation), atol=1e-5)
