"""Shape functions and run-time checks of the native ops themselves.

The Python functions check most of this first; a SavedModel's reader does not. Where the ops are
not built there is nothing to test (and BERT_TF_OPS=native, as in CI, makes that an error).
"""

import pytest
import tensorflow as tf

from bert_tf.ops import native
from tests.ops import backends  # noqa: F401 - fails where CI's native ops are missing

LIBRARY = native.library()


def requires_library(test):
    """Leaves the test out (not a skip, see above) where there is no library."""
    return test if LIBRARY is not None else None


def _placeholder(shape, dtype=tf.float32):
    return tf.compat.v1.placeholder(dtype, shape)


def _gelu(x, bias):
    return LIBRARY.bert_tf_fused_bias_gelu(x, bias)


def _gelu_grad(dy, x, bias):
    return LIBRARY.bert_tf_fused_bias_gelu_grad(dy, x, bias)


def _gate(x):
    return LIBRARY.bert_tf_fused_gate(x, activation="silu")


def _gate_grad(dy, x):
    return LIBRARY.bert_tf_fused_gate_grad(dy, x, activation="silu")


def _layer_norm(x, residual, bias, gamma, beta, seed=None):
    seed = tf.constant(0, tf.int64) if seed is None else seed
    return LIBRARY.bert_tf_fused_residual_layer_norm(
        x, residual, bias, gamma, beta, seed, epsilon=1e-12
    )


def _layer_norm_grad(
    dy, x, residual, bias, gamma, mean, rstd, rate=0.0, num_dresidual=0, other_dy=()
):
    return LIBRARY.bert_tf_fused_residual_layer_norm_grad(
        dy, x, residual, bias, gamma, mean, rstd, tf.constant(0, tf.int64), [*other_dy],
        num_dresidual=num_dresidual, dropout_rate=rate,
    )  # fmt: skip


def _shapes(outputs):
    """Shapes as lists (None where unknown); no and one tensor of a list likewise."""
    return [
        tensor.shape.as_list() if tensor.shape.rank is not None else None
        for tensor in tf.nest.flatten(outputs)
    ]


@requires_library
def test_gelu_shapes():
    with tf.Graph().as_default():
        p = _placeholder
        assert _shapes(_gelu(p([2, None, 5]), p([5]))) == [[2, None, 5]]
        assert _shapes(_gelu(p([2, None]), p([5]))) == [[2, 5]]  # the width is that of the bias
        assert _shapes(_gelu(p([2, 5]), p(None))) == [[2, 5]]
        assert _shapes(_gelu(p(None), p(None))) == [None]
        assert _shapes(_gelu_grad(p([None, 7]), p([3, None]), p(None))) == [[3, 7], [7]]


@requires_library
@pytest.mark.parametrize(
    ("x", "bias", "message"),
    [
        ([], [5], r"`x` must have shape \[..., F\]. Received: x.shape=\[\]"),
        ([2, 5], [1, 5], r"`bias` must have shape \[F\]. Received: bias.shape=\[1,5\]"),
        ([2, 5], [4], r"last dimension of `x`. Received: x.shape=\[2,5\], bias.shape=\[4\]"),
    ],
)
def test_gelu_refuses_shapes(x, bias, message):
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        _gelu(_placeholder(x), _placeholder(bias))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _gelu(tf.zeros(x), tf.zeros(bias))


@requires_library
def test_gelu_gradient_refuses_shapes():
    message = r"`dy` must have the shape of `x`. Received: dy.shape=\[3,5\], x.shape=\[2,5\]"
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        _gelu_grad(_placeholder([3, 5]), _placeholder([2, 5]), _placeholder([5]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _gelu_grad(tf.zeros([3, 5]), tf.zeros([2, 5]), tf.zeros([5]))


@requires_library
def test_gate_shapes():
    with tf.Graph().as_default():
        p = _placeholder
        assert _shapes(_gate(p([2, None, 6]))) == [[2, None, 3]]
        assert _shapes(_gate(p([2, None]))) == [[2, None]]
        assert _shapes(_gate(p(None))) == [None]
        assert _shapes(_gate_grad(p([None, 3]), p([2, None]))) == [[2, 6]]
        assert _shapes(_gate_grad(p(None), p([2, 6]))) == [[2, 6]]


@requires_library
@pytest.mark.parametrize(
    ("dy", "x", "message"),
    [
        (None, [], r"`x` must have an even number of columns. Received: x.shape=\[\]"),
        (None, [2, 5], r"`x` must have an even number of columns. Received: x.shape=\[2,5\]"),
        ([2, 6], [2, 6], r"`dy` must have shape \[2,3\]. Received: dy.shape=\[2,6\]"),
    ],
)
def test_gate_refuses_shapes(dy, x, message):
    function, shapes = (_gate, [x]) if dy is None else (_gate_grad, [dy, x])
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        function(*map(_placeholder, shapes))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        function(*map(tf.zeros, shapes))


@requires_library
def test_layer_norm_shapes():
    with tf.Graph().as_default():
        p = _placeholder
        shapes = _shapes(_layer_norm(p([2, 3, 5]), [p([2, 3, 5])], [p([5])], p([5]), p([5])))
        assert shapes == [[2, 3, 5], [6], [6]]
        assert _shapes(_layer_norm(p([5]), [], [], p([5]), p([5]))) == [[5], [1], [1]]
        shapes = _shapes(_layer_norm(p([None, None]), [p([4, None])], [], p([5]), p(None)))
        assert shapes == [[4, 5], [4], [4]]
        assert _shapes(_layer_norm(p(None), [], [], p([5]), p([5]))) == [None, [None], [None]]


@requires_library
def test_layer_norm_gradient_shapes():
    with tf.Graph().as_default():
        p = _placeholder
        x, v, row = p([2, 3, 5]), p([5]), p([6])
        assert _shapes(_layer_norm_grad(x, x, [], [], v, row, row)) == [[2, 3, 5], [5], [5]]
        assert _shapes(_layer_norm_grad(x, x, [x], [v], v, row, row)) == [
            [2, 3, 5], [5], [5], [5]
        ]  # fmt: skip
        assert _shapes(_layer_norm_grad(x, x, [x], [v], v, row, row, 0.1, 1)) == [
            [2, 3, 5], [2, 3, 5], [5], [5], [5]
        ]  # fmt: skip


@requires_library
@pytest.mark.parametrize(
    ("x", "residual", "bias", "gamma", "beta", "seed", "message"),
    [
        ([], [], [5], [5], [5], [], r"`x` must have shape \[..., H\]. Received: x.shape=\[\]"),
        ([2, 5], [5], [5], [5], [5], [], r"`residual` must have the shape of `x`. Received: "
                                         r"x.shape=\[2,5\], residual.shape=\[5\]"),
        ([2, 5], [2, 5], [4], [5], [5], [], r"`bias` must have shape .*bias.shape=\[4\]"),
        ([2, 5], [2, 5], [5], [4], [5], [], r"`gamma` must have shape .*gamma.shape=\[4\]"),
        ([2, 5], [2, 5], [5], [5], [1, 5], [], r"`beta` must have shape .*beta.shape=\[1,5\]"),
        ([2, 5], [2, 5], [5], [5], [5], [1], r"`seed` must be a scalar.*seed.shape=\[1\]"),
    ],
)  # fmt: skip
def test_layer_norm_refuses_shapes(x, residual, bias, gamma, beta, seed, message):
    shapes = [x, residual, bias, gamma, beta]
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        x, residual, bias, gamma, beta = map(_placeholder, shapes)
        _layer_norm(x, [residual], [bias], gamma, beta, _placeholder(seed, tf.int64))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        x, residual, bias, gamma, beta = map(tf.zeros, shapes)
        _layer_norm(x, [residual], [bias], gamma, beta, tf.zeros(seed, tf.int64))


@requires_library
def test_layer_norm_gradient_refuses_what_does_not_fit():
    x, v, row = tf.zeros([2, 5]), tf.zeros([5]), tf.zeros([2])
    error = tf.errors.InvalidArgumentError
    with pytest.raises(error, match=r"`dy` must have the shape of `x`.*dy.shape=\[3,5\]"):
        _layer_norm_grad(tf.zeros([3, 5]), x, [], [], v, row, row)
    with pytest.raises(error, match=r"`mean` must have shape \[2\].*mean.shape=\[3\]"):
        _layer_norm_grad(x, x, [], [], v, tf.zeros([3]), row)
    with pytest.raises(error, match="`num_dresidual` must be 1.*num_dresidual=0"):
        _layer_norm_grad(x, x, [x], [], v, row, row, 0.1, 0)
    with pytest.raises(
        error, match=r"`other_dy` must have the shape of `x`.*other_dy.shape=\[2,6\]"
    ):
        _layer_norm_grad(x, x, [], [], v, row, row, other_dy=[tf.zeros([2, 6])])
    with pytest.raises(error, match="`num_other_dy` must be 0 or 1.*num_other_dy=2"):
        _layer_norm_grad(x, x, [], [], v, row, row, other_dy=[x, x])
    with pytest.raises(error, match="`num_residual` must be 0 or 1.*num_residual=2"):
        _layer_norm_grad(x, x, [x, x], [], v, row, row)
    with tf.Graph().as_default(), pytest.raises(ValueError, match=r"`rstd` must have shape \[2\]"):
        p = _placeholder
        _layer_norm_grad(p([2, 5]), p([2, 5]), [], [], p([5]), p([2]), p([4]))


@requires_library
def test_a_kernel_checks_every_new_shape():
    vector = tf.TensorSpec([None], tf.float32)
    compute = tf.function(_gelu, input_signature=[tf.TensorSpec([None, None], tf.float32), vector])
    # Numbers of rows whose checked shapes are kept in the same place, and others between them.
    for rows in (2, 66, 3, 2, 130, 66):
        assert compute(tf.ones([rows, 5]), tf.ones([5])).shape == [rows, 5]
        with pytest.raises(tf.errors.InvalidArgumentError, match="`bias` must have"):
            compute(tf.ones([rows, 5]), tf.ones([4]))
