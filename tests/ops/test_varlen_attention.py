"""varlen_attention: the native op and its twin against NumPy float64, values and gradients."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.ops import native
from bert_tf.ops.varlen_attention import varlen_attention, varlen_attention_reference
from tests.ops import numpy_varlen_attention

SEED = -0x0123456789ABCDEF
BACKENDS = ["native", "reference"]
TOLERANCES = {tf.float32: 1e-5, tf.bfloat16: 2e-2, tf.float16: 2e-3}
MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window_size": 3},
    "window_and_globals": {"window_size": 9, "num_global_tokens": 2},
    "causal_window_and_globals": {"causal": True, "window_size": 5, "num_global_tokens": 1},
}
LENGTHS = {
    "odd": [3, 0, 1, 17, 70],
    "one_token": [1],
    "even_tiles": [64, 128],
    "no_tokens": [0, 0],
    "no_sequences": [],
}


def _case(lengths, num_heads=3, head_size=8, dtype=tf.float32, random_seed=0):
    """qkv and d_output, tensors of `dtype`, and row_splits."""
    random = np.random.default_rng(random_seed)
    row_splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    qkv = random.standard_normal([row_splits[-1], 3, num_heads, head_size])
    d_output = random.standard_normal([row_splits[-1], num_heads, head_size])
    return tf.cast(qkv, dtype), row_splits, tf.cast(d_output, dtype)


def _value_and_gradient(backend, qkv, row_splits, d_output, **options):
    with native.backend(backend), tf.GradientTape() as tape:
        tape.watch(qkv)
        output = varlen_attention(qkv, row_splits, **options)
        d_qkv = tape.gradient(output, qkv, output_gradients=d_output)
    # The twin gathers rows, so where qkv is the source itself its gradient is IndexedSlices.
    return output, tf.convert_to_tensor(d_qkv)


def _assert_near(actual, expected, tolerance):
    actual = np.asarray(tf.cast(actual, tf.float64))
    assert actual.shape == expected.shape
    if actual.size:
        largest = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * largest)


def _check_against_numpy(backend, qkv, row_splits, d_output, **options):
    output, d_qkv = _value_and_gradient(backend, qkv, row_splits, d_output, **options)
    expected, expected_d_qkv = numpy_varlen_attention.varlen_attention(
        tf.cast(qkv, tf.float64), row_splits, d_output=tf.cast(d_output, tf.float64), **options
    )
    assert output.dtype == qkv.dtype and d_qkv.dtype == qkv.dtype
    _assert_near(output, expected, TOLERANCES[qkv.dtype])
    _assert_near(d_qkv, expected_d_qkv, TOLERANCES[qkv.dtype])


def test_the_numpy_gradient_by_finite_differences():
    qkv, row_splits, d_output = _case([4, 2], num_heads=2, head_size=3)
    qkv, d_output = qkv.numpy().astype(np.float64), d_output.numpy().astype(np.float64)
    options = {"dropout_rate": 0.4, "seed": 5, "window_size": 1, "num_global_tokens": 1}
    _, d_qkv = numpy_varlen_attention.varlen_attention(
        qkv, row_splits, d_output=d_output, **options
    )
    step = 1e-6
    for index in np.ndindex(qkv.shape):
        losses = []
        for sign in (1, -1):
            moved = qkv.copy()
            moved[index] += sign * step
            output = numpy_varlen_attention.varlen_attention(moved, row_splits, **options)
            losses.append(np.sum(output * d_output))
        assert abs((losses[0] - losses[1]) / (2 * step) - d_qkv[index]) < 1e-8


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
@pytest.mark.parametrize("dropout_rate", [0.0, 0.3])
def test_values_and_gradients(backend, lengths, mask, dropout_rate):
    options = {"dropout_rate": dropout_rate, "seed": SEED, **mask}
    _check_against_numpy(backend, *_case(lengths), **options)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", TOLERANCES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("head_size", [1, 5, 32, 40, 64, 128])
def test_dtypes_and_head_sizes(backend, dtype, head_size):
    case = _case([2, 37, 66], num_heads=2, head_size=head_size, dtype=dtype)
    _check_against_numpy(backend, *case, dropout_rate=0.1, seed=SEED)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_the_twin_draws_the_same_dropout_mask(mask):
    # Values of one: an output is the share of the probabilities that was kept, and one bit of
    # difference in the mask would show.
    qkv, row_splits, d_output = _case([9, 130])
    qkv = tf.concat([qkv[:, :2], tf.ones_like(qkv[:, 2:])], axis=1)
    options = {"dropout_rate": 0.5, "seed": SEED, **mask}
    arguments = (qkv, row_splits, d_output)
    native_output, native_d_qkv = _value_and_gradient("native", *arguments, **options)
    output, d_qkv = _value_and_gradient("reference", *arguments, **options)
    np.testing.assert_allclose(native_output, output, rtol=0, atol=2e-6)
    np.testing.assert_allclose(native_d_qkv, d_qkv, rtol=0, atol=1e-5)
    other_seed = varlen_attention(qkv, row_splits, **{**options, "seed": SEED + 1})
    assert np.abs(other_seed - output).max() > 0.01


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_row_splits_of_either_integer_type(dtype):
    qkv, row_splits, _ = _case([5, 6])
    with native.backend("native"):
        output = varlen_attention(qkv, tf.constant(row_splits, dtype))
    expected = numpy_varlen_attention.varlen_attention(qkv, row_splits)
    _assert_near(output, expected, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_function_of_unknown_shapes(backend):
    signature = [
        tf.TensorSpec(None, tf.float32),
        tf.TensorSpec(None, tf.int64),
        tf.TensorSpec([], tf.int64),
    ]

    @tf.function(input_signature=signature)
    def value_and_gradient(qkv, row_splits, seed):
        with tf.GradientTape() as tape:
            qkv = tf.ensure_shape(qkv, [None, 3, None, None])
            tape.watch(qkv)
            output = varlen_attention(qkv, row_splits, dropout_rate=0.2, seed=seed)
            assert output.shape.rank == 3
            loss = tf.reduce_sum(output**2)
        return output, tf.convert_to_tensor(tape.gradient(loss, qkv))

    for lengths in ([3, 4], [80], [0, 2]):
        qkv, row_splits, _ = _case(lengths)
        with native.backend(backend):
            output, d_qkv = value_and_gradient(qkv, row_splits, SEED)
        d_output = 2.0 * output
        expected, expected_d_qkv = numpy_varlen_attention.varlen_attention(
            qkv, row_splits, dropout_rate=0.2, seed=SEED, d_output=d_output
        )
        _assert_near(output, expected, 1e-5)
        _assert_near(d_qkv, expected_d_qkv, 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_static_shapes_are_inferred(backend):
    @tf.function(input_signature=[tf.TensorSpec([None, 3, 4, 8]), tf.TensorSpec([None], tf.int32)])
    def attend(qkv, row_splits):
        output = varlen_attention(qkv, row_splits)
        assert output.shape.as_list() == [None, 4, 8]
        return output

    with native.backend(backend):
        attend.get_concrete_function()


def test_a_long_sequence_needs_memory_linear_in_its_length():
    # A [2048, 2048] float32 tensor would be 16 MiB; the tape keeps qkv, output and logsumexp only.
    length = 2048
    qkv, row_splits, d_output = _case([length], num_heads=1, head_size=16)
    _check_against_numpy("native", qkv, row_splits, d_output)

    @tf.function
    def attend(qkv):
        return varlen_attention(qkv, row_splits)

    with native.backend("native"), tf.GradientTape() as tape:
        tape.watch(qkv)
        attend(qkv)
        graph = attend.get_concrete_function(qkv).graph
    for operation in graph.get_operations():
        for tensor in operation.outputs:
            assert (tensor.shape.num_elements() or 0) <= qkv.shape.num_elements()


def test_not_a_number_stays_where_it_is_seen():
    qkv, row_splits, d_output = _case([10, 70])
    poisoned = qkv.numpy()
    poisoned[10 + 40, 2] = np.nan  # the value of position 40 of the second sequence
    output, d_qkv = _value_and_gradient(
        "native", tf.constant(poisoned), row_splits, d_output, causal=True
    )
    finite = np.isfinite(output.numpy()).all(axis=(1, 2))
    np.testing.assert_array_equal(finite, np.arange(80) < 10 + 40)
    assert np.isfinite(d_qkv.numpy()[:50, 0]).all()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("row_splits", "message"),
    [
        ([1, 5], "begin with 0"),
        ([0, 4], "end with the number of rows"),
        ([0, 6], "end with the number of rows"),
        ([0, 3, 2, 5], "never decrease"),
        ([-1, 5], "begin with 0"),
    ],
)
def test_bad_row_splits_are_refused(backend, row_splits, message):
    qkv, _, _ = _case([5])
    with native.backend(backend), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        varlen_attention(qkv, tf.constant(row_splits))


@pytest.mark.parametrize("function", [varlen_attention, varlen_attention_reference])
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"qkv": tf.zeros([5, 2, 3, 4])}, ValueError, "qkv of shape"),
        ({"qkv": tf.zeros([5, 12])}, ValueError, "qkv of shape"),
        ({"qkv": tf.zeros([5, 3, 3, 4], tf.float64)}, TypeError, "float32, bfloat16 or float16"),
        ({"row_splits": [0.0, 5.0]}, TypeError, "int32 or int64"),
        ({"row_splits": [[0, 5]]}, ValueError, "row_splits of shape"),
        ({"row_splits": tf.zeros([0], tf.int32)}, ValueError, "row_splits of shape"),
        ({"dropout_rate": 1.0, "seed": 1}, ValueError, "dropout_rate in"),
        ({"dropout_rate": 0.1}, ValueError, "a seed"),
        ({"window_size": -1}, ValueError, "window_size >= 0"),
        ({"window_size": 1, "num_global_tokens": -1}, ValueError, "num_global_tokens >= 0"),
        ({"num_global_tokens": 1}, ValueError, "window_size with num_global_tokens"),
    ],
)
def test_bad_arguments_are_refused(function, changes, error, message):
    arguments = {"qkv": tf.zeros([5, 3, 3, 4]), "row_splits": [0, 5], **changes}
    with pytest.raises(error, match=message):
        function(**arguments)
