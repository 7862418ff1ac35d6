"""NaN and infinity appear in the same places of the native ops' results and gradients as of the
reference's."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.ops.attention_rules import varlen_attention
from tests.ops.backends import BACKENDS

DTYPES = [tf.float32, tf.bfloat16, tf.float16]


@pytest.fixture(autouse=True)
def native_ops():
    if BACKENDS == ("reference",):
        pytest.skip("needs the native ops")


def _kinds(tensor):
    """0 where finite, 1 and -1 where infinite, 2 where NaN."""
    values = tf.cast(tf.convert_to_tensor(tensor), tf.float64).numpy()
    return np.where(np.isnan(values), 2, np.where(np.isinf(values), np.sign(values), 0))


def _result_and_gradients(backend, function, arguments):
    with ops.backend(backend), tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments)
        weights = tf.reshape(tf.cos(tf.range(tf.size(y), dtype=tf.float32)), y.shape)
    return [y, *tape.gradient(y, arguments, output_gradients=tf.cast(weights, y.dtype))]


def assert_not_finite_in_the_same_places(function, *arguments):
    results = [_result_and_gradients(name, function, arguments) for name in ("native", "reference")]
    for got, wanted in zip(*results, strict=True):
        np.testing.assert_array_equal(_kinds(got), _kinds(wanted))
    return results[0]


def _rows(columns, largest):
    """Rows whose numbers are equal, almost equal, tiny, huge or not finite."""
    numbers = np.random.default_rng(0).normal(size=columns)
    first = np.eye(columns)[0]
    return np.stack([
        *(np.full(columns, value) for value in (0, 0.1, 3, 1e-7, largest, 1e-20, 1e-36)),
        1 + 2e-7 * first, 1e-14 * (1 + 2e-7 * first), 1e-36 * numbers, 1e-16 * numbers,
        numbers * largest / 4, np.where(first, np.inf, 1), np.where(first, np.nan, 1), numbers,
    ])  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [7, 100])
@pytest.mark.parametrize("epsilon", [0.0, 1e-12])
def test_layer_norm(dtype, columns, epsilon):
    rng = np.random.default_rng(1)
    gamma, beta = (tf.cast(rng.normal(size=columns), dtype) for _ in range(2))
    for row in _rows(columns, 6e4 if dtype == tf.float16 else 3e38):
        x = tf.cast(np.stack([row, rng.normal(size=columns)]), dtype)
        y, *_ = assert_not_finite_in_the_same_places(
            lambda x, gamma, beta: ops.fused_residual_layer_norm(
                x, None, None, gamma, beta, epsilon
            ),
            x, gamma, beta,
        )  # fmt: skip
        values = tf.cast(x, tf.float32).numpy()[0]
        if epsilon == 0.0 and (values == values[0]).all():
            assert np.isnan(tf.cast(y, tf.float32).numpy()[0]).all()  # 0 / 0


@pytest.mark.parametrize("units", [7, 96])
def test_layer_norm_after_a_matmul(units):
    packed = ops.pack_dense(tf.ones([4, units]))
    gamma = tf.ones([units])
    for backend in BACKENDS:
        with ops.backend(backend):
            y = ops.fused_dense(tf.fill([3, 4], 0.1), packed, units, gamma=gamma, beta=gamma,
                                epsilon=0.0)  # fmt: skip
        assert np.isnan(y).all()


@pytest.mark.parametrize("head_size", [4, 20])
@pytest.mark.parametrize(
    "mask", [{}, {"causal": True}, {"window_size": 3}, {"dropout_rate": 0.3, "seed": 1}], ids=str
)
@pytest.mark.parametrize("dtype, scale", [
    (tf.float16, 1e4), (tf.bfloat16, 3e4), (tf.float32, 1e2), (tf.float32, 3e4), (tf.float32, 1e18),
])  # fmt: skip
def test_attention_of_large_scores(dtype, scale, mask, head_size):
    # Finite scores, far beyond what a float32 exponential or its last bits hold.
    qkv = np.random.default_rng(0).normal(size=(90, 3, 2, head_size))
    qkv[:, :2] *= scale
    results = assert_not_finite_in_the_same_places(
        lambda qkv: varlen_attention(qkv, [0, 5, 75, 90], **mask), tf.cast(qkv, dtype)
    )
    assert not np.any([_kinds(result).any() for result in results])


@pytest.mark.parametrize(
    "mask", [{}, {"causal": True}, {"window_size": 2}, {"dropout_rate": 0.5, "seed": 1}], ids=str
)
@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_attention_of_overflowing_scores(dtype, mask):
    # Every seventh query against every fifth key: plus or minus infinity; no other comes near.
    rng = np.random.default_rng(0)
    qkv = rng.normal(size=(90, 3, 2, 4))
    qkv[::7, 0] = 1e30 * rng.choice([-1, 1], size=(13, 2, 1))
    qkv[::5, 1] = 1e30
    arguments = [tf.cast(qkv, dtype)]
    (y, d_qkv), (expected, d_expected) = (
        map(
            _kinds,
            _result_and_gradients(
                name, lambda qkv: varlen_attention(qkv, [0, 5, 75, 90], **mask), arguments
            ),
        )
        for name in ("native", "reference")
    )
    np.testing.assert_array_equal(y, expected)
    assert (y == 2).any() and not y.all()
    np.testing.assert_array_equal(d_qkv[:, :2], d_expected[:, :2])
    # The op's gradients of the values are NaN at the keys whose score is +infinity, exactly. The
    # reference's were NaN for all keys of the row on a processor without AVX-512.
    rows = np.arange(90)
    sequence = np.searchsorted([5, 75], rows, side="right")
    sees = sequence[:, np.newaxis] == sequence
    distance = rows[:, np.newaxis] - rows
    if mask.get("causal"):
        sees &= distance >= 0
    if "window_size" in mask:
        sees &= np.abs(distance) <= mask["window_size"]
    is_nan = (y == 2).any(axis=2)  # [queries, heads]
    at_infinity = np.einsum("qk,qh->kh", sees, is_nan) & (rows % 5 == 0)[:, np.newaxis]
    found = (d_qkv[:, 2] == 2).all(axis=2)
    assert found.any() and np.all(d_expected[:, 2][d_qkv[:, 2] != 0] == 2)
    if "dropout_rate" in mask:  # which may drop them
        assert np.all(at_infinity[found])
    else:
        np.testing.assert_array_equal(found, at_infinity)


def test_attention_just_below_the_largest_score():
    # 3e38 is a float32, but 3e38 log2(e) is not.
    qkv = np.ones((3, 3, 1, 4), np.float32)
    qkv[:, 0] = [[[1.5e38**0.5]], [[-(1.5e38**0.5)]], [[1.0]]]
    qkv[:, 1] = 1.5e38**0.5
    qkv[1, 1] *= 0.5
    y, d_qkv = assert_not_finite_in_the_same_places(
        lambda qkv: ops.varlen_attention(qkv, [0, 3]), tf.constant(qkv)
    )
    assert np.isfinite(y).all() and np.isfinite(d_qkv).all()


@pytest.mark.parametrize("scale", [10.0, 100.0, 1e4])
def test_the_gradient_of_large_scores_is_the_references(scale):
    qkv = np.random.default_rng(0).normal(size=(90, 3, 2, 8)).astype(np.float32)
    qkv[:, :2] *= scale
    results = [
        _result_and_gradients(
            name, lambda qkv: ops.varlen_attention(qkv, [0, 5, 75, 90]), [tf.constant(qkv)]
        )
        for name in ("native", "reference")
    ]
    (_, got), (_, wanted) = results
    wanted = tf.convert_to_tensor(wanted).numpy()
    np.testing.assert_allclose(got[:, 2], wanted[:, 2], atol=1e-3)
