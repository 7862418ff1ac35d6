"""varlen_attention: its dropout, memory, NaN and errors. What every op must do is in
tests/conformance/test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.ops import native, varlen_attention_reference
from tests.ops import numpy_varlen_attention
from tests.ops.attention_rules import varlen_attention, with_rule
from tests.ops.backends import BACKENDS
from tests.ops.numpy_varlen_attention import MASKS

SEED = -0x0123456789ABCDEF


def _case(lengths, num_heads=3, head_size=8):
    """qkv, row_splits and d_output."""
    random = np.random.default_rng(0)
    row_splits = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    qkv = random.standard_normal([row_splits[-1], 3, num_heads, head_size])
    d_output = random.standard_normal([row_splits[-1], num_heads, head_size])
    return tf.cast(qkv, tf.float32), row_splits, tf.cast(d_output, tf.float32)


def _value_and_gradient(backend, qkv, row_splits, d_output, **options):
    with native.backend(backend), tf.GradientTape() as tape:
        tape.watch(qkv)
        output = varlen_attention(qkv, row_splits, **options)
        d_qkv = tape.gradient(output, qkv, output_gradients=d_output)
    return output, tf.convert_to_tensor(d_qkv)  # the reference's is IndexedSlices


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


@pytest.mark.parametrize("mask", MASKS.values(), ids=str)
def test_the_reference_draws_the_same_dropout_mask(mask):
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


@pytest.mark.parametrize("backend", BACKENDS)
def test_products_in_bfloat16_round_queries_keys_and_values(backend):
    qkv, row_splits, d_output = _case([5, 70])
    rounded = tf.cast(tf.cast(qkv, tf.bfloat16), tf.float32)
    results, rounded_results, float32_results = (
        _value_and_gradient(backend, numbers, row_splits, d_output, compute_dtype=compute_dtype)
        for numbers, compute_dtype in ((qkv, "bfloat16"), (rounded, "bfloat16"), (rounded, None))
    )
    for result, same, other in zip(results, rounded_results, float32_results, strict=True):
        np.testing.assert_array_equal(result, same)
        assert np.abs(result - other).max() > 1e-4


def test_a_long_sequence_needs_memory_linear_in_its_length():
    # A [2048, 2048] float32 tensor would be 16 MiB; the tape keeps qkv, output and logsumexp only.
    length = 2048
    qkv, row_splits, d_output = _case([length], num_heads=1, head_size=16)
    actual = _value_and_gradient("native", qkv, row_splits, d_output)
    expected = numpy_varlen_attention.varlen_attention(qkv, row_splits, d_output=d_output)
    for received, wanted in zip(actual, expected, strict=True):
        atol = 1e-5 * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(received, wanted, rtol=0, atol=atol)

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


def test_distances_of_long_sequences_need_no_tensor_of_pairs():
    length, kinds = 700, 64
    qkv, row_splits, d_output = _case([length, 3], num_heads=2)
    distances = np.arange(-600, 601)  # those from 600 on share the last row
    rows = (kinds // 2 - np.sign(distances) * np.log2(1 + np.abs(distances))).astype(np.int32)
    vectors = tf.random.stateless_normal([kinds, 2, 2, 8], [1, 2])
    options = {"distance_vectors": vectors, "distance_rows": rows}

    @tf.function
    def attend(qkv):
        return _value_and_gradient("native", qkv, row_splits, d_output, **options)

    output, d_qkv = attend(qkv)
    expected, d_expected = _value_and_gradient("reference", qkv, row_splits, d_output, **options)
    np.testing.assert_allclose(output, expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(d_qkv, d_expected, rtol=0, atol=5e-5)
    if not tf.config.get_visible_devices("GPU"):
        types = {one.type for one in attend.get_concrete_function(qkv).graph.get_operations()}
        assert {"BertTf>VarlenAttention", "BertTf>VarlenAttentionGrad"} <= types
        assert "BatchMatMulV2" not in types


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


BLOCK, LENGTHS = 4, [0, 1, 30, 7, 0, 16]


def _blocks(num_blocks):
    """attended_blocks [B, n, n] of `LENGTHS`, in which each block attends to itself."""
    random = np.random.default_rng(1).random([len(LENGTHS), num_blocks, num_blocks])
    return (random < 0.3) | np.eye(num_blocks, dtype=bool)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype, atol", [("float32", 1e-5), ("bfloat16", 0.05), ("float16", 5e-3)])
def test_attention_to_blocks(backend, dtype, atol):
    qkv, row_splits, d_output = (tf.constant(x) for x in _case(LENGTHS))
    qkv, d_output = tf.cast(qkv, dtype), tf.cast(d_output, dtype)
    blocks = _blocks(9)  # one more than the longest sequence has
    options = {"attended_blocks": tf.constant(blocks), "block_size": BLOCK}
    received = _value_and_gradient(backend, qkv, row_splits, d_output, **options)
    exact, gradients = (x.numpy().astype(np.float64) for x in (qkv, d_output))
    for sequence, (start, end) in enumerate(zip(row_splits, row_splits[1:])):
        rows, splits, own = slice(start, end), [0, end - start], blocks[sequence]
        place = np.arange(end - start) // BLOCK
        output, d_query, d_key_value, *_ = numpy_varlen_attention._attention(
            exact[rows, 0], exact[rows, 1:], splits, splits,
            lambda n, m: own[place[:, np.newaxis], place],
            0.0, 0, gradients[rows],
        )  # fmt: skip
        d_qkv = np.concatenate([d_query[:, np.newaxis], d_key_value], axis=1)
        for value, wanted in zip(received, (output, d_qkv), strict=True):
            assert value.dtype == dtype
            np.testing.assert_allclose(tf.cast(value[start:end], "float32"), wanted, atol=atol)


def test_what_no_block_attends_to_may_be_infinite():
    qkv, row_splits, d_output = _case(LENGTHS)
    qkv = qkv.numpy()
    qkv[1 + 5, 1], qkv[1 + 6, 2] = np.inf, np.nan  # in block 1 of the third sequence
    blocks = _blocks(8)
    options = {"attended_blocks": tf.constant(blocks), "block_size": BLOCK}
    output, _ = _value_and_gradient("native", tf.constant(qkv), row_splits, d_output, **options)
    is_finite = np.isfinite(output.numpy()).all(axis=(1, 2))
    expected = np.ones(54, bool)
    expected[1:31] = ~blocks[2, np.arange(30) // BLOCK, 1]
    np.testing.assert_array_equal(is_finite, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_dropout_of_attention_to_blocks(backend):
    qkv, row_splits, d_output = _case([400])
    qkv = tf.concat([qkv[:, :2], tf.ones_like(qkv[:, 2:])], axis=1)
    blocks = tf.constant(np.eye(100, dtype=bool)[np.newaxis] | (np.arange(100) % 5 == 0))
    options = {"attended_blocks": blocks, "block_size": BLOCK, "dropout_rate": 0.5}
    first, again, other = (
        _value_and_gradient(backend, qkv, row_splits, d_output, seed=seed, **options)[0]
        for seed in (SEED, SEED, SEED + 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 0.1
    assert abs(np.mean(first) - 1.0) < 0.02  # of values of one, the half that is kept counts twice


@pytest.mark.parametrize("backend", BACKENDS)
def test_too_few_blocks_are_refused(backend):
    qkv, row_splits, _ = _case(LENGTHS)
    with native.backend(backend), pytest.raises(tf.errors.InvalidArgumentError):
        blocks = tf.constant(_blocks(7))
        varlen_attention(qkv, row_splits, attended_blocks=blocks, block_size=BLOCK)


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


@pytest.mark.parametrize("function", [varlen_attention, with_rule(varlen_attention_reference)])
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"qkv": tf.zeros([5, 2, 3, 4])}, ValueError, "`qkv` must have shape"),
        ({"qkv": tf.zeros([5, 12])}, ValueError, "`qkv` must have shape"),
        ({"qkv": tf.zeros([5, 3, 3, 4], tf.float64)}, TypeError, "float32, bfloat16 or float16"),
        ({"row_splits": [0.0, 5.0]}, TypeError, "int32 or int64"),
        ({"row_splits": [[0, 5]]}, ValueError, "`row_splits` must have shape"),
        ({"row_splits": tf.zeros([0], tf.int32)}, ValueError, "`row_splits` must have shape"),
        ({"dropout_rate": 1.0, "seed": 1}, ValueError, "`dropout_rate` must be in"),
        ({"dropout_rate": 0.1}, ValueError, "`seed` must be"),
        ({"window_size": -1}, ValueError, "`window_size` must be at least 0"),
        ({"window_size": 1, "num_global_tokens": -1}, ValueError, "`num_global_tokens` must be"),
        ({"num_global_tokens": 1}, ValueError, "`window_size` must be given"),
        ({"compute_dtype": "float16"}, ValueError, '`compute_dtype` must be "bfloat16", or None'),
        ({"distance_bias": tf.zeros([3, 4])}, ValueError, "an odd number of distances"),
        ({"distance_bias": tf.zeros([2, 5])}, ValueError, r"must have shape \[3, an odd"),
        ({"distance_bias": tf.zeros([5])}, ValueError, "`distance_bias` must have shape"),
        ({"distance_bias": tf.zeros([3, 5], tf.float16)}, TypeError, "the dtype of `qkv`, float32"),
        (
            {"distance_vectors": tf.zeros([6, 2, 3, 5]), "distance_rows": [0]},
            ValueError,
            "`distance_vectors` must have shape",
        ),
        ({"rotation": tf.zeros([5, 3])}, ValueError, "`rotation` must be float32"),
        ({"rotation": tf.zeros([5, 6])}, ValueError, "at most the head size 4"),
        ({"rotation": tf.zeros([5, 4], tf.float16)}, ValueError, "`rotation` must be float32"),
        ({"rotation": tf.zeros([4, 4])}, tf.errors.InvalidArgumentError, "a row for each place"),
    ],
)
def test_bad_arguments_are_refused(function, changes, error, message):
    arguments = {"qkv": tf.zeros([5, 3, 3, 4]), "row_splits": [0, 5], **changes}
    with pytest.raises(error, match=message):
        function(**arguments)


def check_that_few_places_give_nan(backend, jit_compile):
    """Checks the results of sequences of 1 and 3 tokens with a rotation of 2 places."""
    qkv, row_splits, d_output = _case([1, 3], num_heads=2, head_size=5)

    @tf.function(jit_compile=jit_compile)
    def run(rotation):
        splits = tf.constant(row_splits)
        return _value_and_gradient(backend, qkv, splits, d_output, rotation=rotation)

    rotation = tf.random.stateless_uniform([3, 4], [0, 0])
    results, expected = run(rotation[:2]), run.python_function(rotation)
    for i in range(2):
        assert np.isnan(results[i][1:]).all() and np.isfinite(expected[i]).all()
        # In the gradient of the reference, 0 times NaN is in the padding of the first sequence.
        if i == 0 or backend == "native":
            np.testing.assert_allclose(results[i][:1], expected[i][:1], atol=1e-6)


def test_few_places_give_nan_where_xla_compiles_the_reference():
    check_that_few_places_give_nan("reference", jit_compile=True)
