"""fused_dense and pack_dense: packing, gradients and errors. What every op must do is in
tests/conformance/test_ops.py.

All numbers of rows, the other instruction sets and thread counts are tested on the kernels
themselves: custom_ops/kernels/dense/fused_dense_test.cc.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.backends import BACKENDS

on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
needs_native = pytest.mark.skipif("native" not in BACKENDS, reason="needs the native ops")


def _normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32)


@on_every_backend
@pytest.mark.parametrize("shape", [(1, 1), (3, 32), (256, 5), (257, 33), (1000, 70)], ids=str)
def test_unpacking_undoes_packing(backend, shape):
    kernel = _normal(*shape)
    with ops.backend(backend):
        packed = ops.pack_dense(kernel)
    assert packed.shape == [shape[0] * -(-shape[1] // 32) * 32]
    np.testing.assert_array_equal(ops.unpack_dense(packed, *shape), kernel)


@on_every_backend
def test_gradient_matmul_by_the_transpose(backend):
    dy, kernel = _normal(9, 48), _normal(20, 48)  # dy [M, units], W [K, units]
    with ops.backend(backend):
        dx = ops.fused_dense(dy, ops.pack_dense(kernel, transposed=True), units=20)
    np.testing.assert_allclose(dx, np.float64(dy) @ np.float64(kernel).T, atol=1e-5)


def test_gradient_of_the_reference():
    x, kernel = tf.constant(_normal(5, 40)), _normal(40, 33)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = ops.fused_dense_reference(x, ops.pack_dense_reference(kernel), 33, tf.zeros([33]))
    expected = np.broadcast_to(np.float64(kernel).sum(axis=1), x.shape)
    np.testing.assert_allclose(tape.gradient(y, x), expected, atol=1e-5)


@on_every_backend
def test_errors_say_what_was_expected_and_received(backend):
    x, v = tf.zeros([4, 3]), tf.zeros([5])
    with ops.backend(backend):
        packed = ops.pack_dense(tf.zeros([3, 5]))

        def refused(match, x=x, packed=packed, units=5, **arguments):
            with pytest.raises(ValueError, match=match):
                ops.fused_dense(x, packed, units, **arguments)

        refused(r"`x` must have shape \[M, K\]. Received: .*\(3,\)", x=tf.zeros([3]))
        refused(r"`packed` must have shape \[128\].*Received: .*\(96,\)", x=tf.zeros([4, 4]))
        refused(r"`packed` must have shape \[192\].*units=33. Received", units=33)
        refused("`gamma` and `beta` must be given together. Received: beta=None", gamma=v)
        refused("None, 'gelu', 'gelu_new' or 'silu'.*'relu'", activation="relu")
        refused("`units` must be a multiple of 64 with.*units=5", is_gated=True)
        refused("`is_gated` must be False if", is_gated=True, residual=tf.zeros([4, 5]))
        refused("`activation` must be None if", activation="gelu", residual=tf.zeros([4, 5]))
        refused("`epsilon` must be at least 0.*-1.0", gamma=v, beta=v, epsilon=-1.0)
        with pytest.raises(ValueError, match=r"`kernel` must be a matrix.*\(3, 5, 1\)"):
            ops.pack_dense(tf.zeros([3, 5, 1]))


@needs_native
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"packed": [97]}, r"`packed` must have shape \[96\].*Received: packed.shape=\[97\]"),
        ({"x": [4, 3, 1]}, r"`x` must have shape \[M, K\]. Received: x.shape=\[4,3,1\]"),
        ({"bias": [6]}, r"`bias` must have shape \[5\].*bias.shape=\[6\]"),
        ({"residual": [4, 6]}, r"`residual` must have (the )?shape .*residual.shape=\[4,6\]"),
        ({"gamma": [1, 5]}, r"`gamma` must have shape \[5\].*gamma.shape=\[1,5\]"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_the_op_itself_refuses_what_does_not_fit(arguments, message):
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


@needs_native
def test_shape_functions():
    library = ops.native.library()
    with tf.Graph().as_default():

        def p(shape):
            return tf.compat.v1.placeholder(tf.float32, shape)

        def dense(x, packed, bias, residual):
            y = library.bert_tf_fused_dense(x, packed, bias, residual, [], [], units=5)
            return y.shape.as_list()

        assert dense(p([4, 3]), p([96]), [], []) == [4, 5]
        assert dense(p(None), p(None), [p(None)], []) == [None, 5]
        gated = functools.partial(library.bert_tf_fused_dense, p([4, 3]), is_gated=True)
        assert gated(p([192]), [p([64])], [], [], [], units=64).shape == [4, 32]
        with pytest.raises(ValueError, match="`units` must be a multiple of 64.*units=96"):
            gated(p([288]), [], [], [], [], units=96)
        with pytest.raises(ValueError, match="without a residual or LayerNorm.*num_residual=1"):
            gated(p([192]), [], [p([4, 64])], [], [], units=64)
        assert dense(p([None, 3]), p(None), [], [p([4, None])]) == [4, 5]
        assert library.bert_tf_pack_dense(p([3, 5])).shape == [96]
        assert library.bert_tf_pack_dense(p([5, 3]), transposed=True).shape == [96]
        assert library.bert_tf_pack_dense(p([None, 5])).shape.as_list() == [None]
        with pytest.raises(ValueError, match=r"`kernel` must be a matrix.*\[5\]"):
            library.bert_tf_pack_dense(p([5]))
