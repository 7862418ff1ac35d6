"""varlen_cross_attention: its bits, queries without keys, NaN and errors. What every op must do is
in tests/conformance/test_ops.py."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.ops import native
from tests.conformance.op import ROUNDING, assert_same_bits
from tests.ops import numpy_varlen_attention
from tests.ops.attention_rules import varlen_attention, varlen_cross_attention, with_rule
from tests.ops.backends import BACKENDS

SEED = -0x0123456789ABCDEF
on_every_backend = pytest.mark.parametrize("backend", BACKENDS)
needs_native = pytest.mark.skipif(BACKENDS == ("reference",), reason="needs the native ops")


def _splits(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def _case(lengths, key_lengths, num_heads=3, head_size=8):
    """The tensors, and a gradient of the output."""
    random = np.random.default_rng(0)
    splits, key_splits = _splits(lengths), _splits(key_lengths)
    query, d_output = random.standard_normal([2, splits[-1], num_heads, head_size])
    key_value = random.standard_normal([key_splits[-1], 2, num_heads, head_size])
    tensors = [tf.cast(query, tf.float32), tf.cast(key_value, tf.float32), splits, key_splits]
    return tensors, tf.cast(d_output, tf.float32)


def _value_and_gradients(backend, tensors, d_output, **options):
    with native.backend(backend), tf.GradientTape() as tape:
        tape.watch(tensors[:2])
        output = varlen_cross_attention(*tensors, **options)
        gradients = tape.gradient(output, tensors[:2], output_gradients=d_output)
    # Those of the reference are IndexedSlices.
    return output, *map(tf.convert_to_tensor, gradients)


@needs_native
@pytest.mark.parametrize("dtype", ROUNDING, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_has_the_bits_of_varlen_attention(causal, dtype):
    splits = _splits([150, 0, 1, 70])
    qkv = tf.cast(np.random.default_rng(0).standard_normal([221, 3, 2, 40]), dtype)
    options = {"causal": causal, "dropout_rate": 0.3, "seed": SEED}
    with native.backend("native"), tf.GradientTape(persistent=True) as tape:
        tape.watch(qkv)
        expected = varlen_attention(qkv, splits, **options)
        output = varlen_cross_attention(qkv[:, 0], qkv[:, 1:], splits, splits, **options)
    assert_same_bits(output, expected)
    assert_same_bits(tape.gradient(output, qkv), tape.gradient(expected, qkv))


@needs_native
def test_new_tokens_with_cached_keys_have_the_bits_of_all_tokens_at_once():
    splits = _splits([130, 3, 70])
    qkv = tf.cast(np.random.default_rng(0).standard_normal([203, 3, 2, 40]), tf.float32)
    with native.backend("native"):
        all_at_once = varlen_attention(qkv, splits, causal=True)
        for new in ([1, 1, 1], [67, 2, 1]):  # the last tokens of each sequence
            rows = np.concatenate([np.arange(end - n, end) for n, end in zip(new, splits[1:])])
            output = varlen_cross_attention(
                tf.gather(qkv[:, 0], rows), qkv[:, 1:], _splits(new), splits, causal=True
            )
            assert_same_bits(output, tf.gather(all_at_once, rows))


@on_every_backend
def test_queries_without_keys_have_zeros(backend):
    tensors, d_output = _case([100, 3, 5], [30, 0, 7])
    output, d_query, _ = _value_and_gradients(backend, tensors, d_output, causal=True)
    without_keys = np.r_[:70, 100:103]  # in the first sequence, the first 100 - 30
    for values in (output.numpy(), d_query.numpy()):
        assert not values[without_keys].any()
        assert values[np.delete(np.arange(108), without_keys)].all(axis=(1, 2)).sum() >= 34
    alone, d_query, d_key_value = _value_and_gradients(
        backend, [tensors[0], tensors[1][:0], tensors[2], np.zeros(4, np.int64)], d_output
    )
    assert not alone.numpy().any() and not d_query.numpy().any()
    assert d_key_value.shape == [0, 2, 3, 8]


@needs_native
def test_the_reference_draws_the_same_dropout_mask():
    # Values of one: an output is the share of the probabilities that was kept, and one bit of
    # difference in the mask would show.
    tensors, _ = _case([9, 70], [130, 20])
    tensors[1] = tf.concat([tensors[1][:, :1], tf.ones_like(tensors[1][:, 1:])], axis=1)

    def outputs(seed):
        for backend in ("native", "reference"):
            with native.backend(backend):
                yield varlen_cross_attention(*tensors, dropout_rate=0.5, seed=seed)

    native_output, output = outputs(SEED)
    np.testing.assert_allclose(native_output, output, rtol=0, atol=2e-6)
    assert np.abs(next(outputs(SEED + 1)) - output).max() > 0.01


def test_the_numpy_gradient_by_finite_differences():
    (query, key_value, *splits), d_output = _case([4, 2], [3, 5], num_heads=2, head_size=3)
    inputs = [query.numpy().astype(np.float64), key_value.numpy().astype(np.float64)]
    d_output = d_output.numpy().astype(np.float64)
    options = {"dropout_rate": 0.4, "seed": 5, "causal": True}
    function = numpy_varlen_attention.varlen_cross_attention
    gradients = function(*inputs, *splits, d_output=d_output, **options)[1:]
    step = 1e-6
    for place, gradient in enumerate(gradients):
        for index in np.ndindex(gradient.shape):
            losses = []
            for sign in (1, -1):
                moved = [x.copy() for x in inputs]
                moved[place][index] += sign * step
                losses.append(np.sum(function(*moved, *splits, **options) * d_output))
            assert abs((losses[0] - losses[1]) / (2 * step) - gradient[index]) < 1e-8


@needs_native
def test_not_a_number_stays_where_it_is_seen():
    tensors, d_output = _case([10, 60], [10, 70])
    key_value = tensors[1].numpy()
    key_value[10 + 40, 1] = np.nan  # the value of position 40 of the second sequence
    tensors[1] = tf.constant(key_value)
    output, d_query, _ = _value_and_gradients("native", tensors, d_output, causal=True)
    # Query i of the second sequence is at position i + 10.
    finite = np.isfinite(output.numpy()).all(axis=(1, 2))
    np.testing.assert_array_equal(finite, np.arange(70) < 10 + 30)
    assert np.isfinite(d_query.numpy()[:40]).all()


@on_every_backend
@pytest.mark.parametrize("place, name, of", [(2, "query", "query"), (3, "key", "key_value")])
@pytest.mark.parametrize(
    ("row_splits", "message"),
    [
        ([1, 3, 5], "`{}_row_splits` must begin with 0"),
        ([0, 3, 4], "`{}_row_splits` must end with the number of rows of `{}`"),
        ([0, 6, 5], "`{}_row_splits` must never decrease"),
    ],
)
def test_bad_row_splits_are_refused(backend, place, name, of, row_splits, message):
    tensors, _ = _case([3, 2], [3, 2])
    tensors[place] = tf.constant(row_splits)
    with (
        native.backend(backend),
        pytest.raises(tf.errors.InvalidArgumentError, match=message.format(name, of)),
    ):
        varlen_cross_attention(*tensors)


def _of_unknown_shapes():
    unknown = [tf.TensorSpec(None, dtype) for dtype in (tf.float32,) * 2 + (tf.int64,) * 2]
    return tf.function(ops.varlen_cross_attention, autograph=False, input_signature=unknown)


@on_every_backend
def test_other_numbers_of_sequences_are_refused_when_a_graph_runs(backend):
    tensors, _ = _case([3, 2], [5])
    message = "`key_row_splits` must have the length of `query_row_splits`"
    if backend == "native":
        message += r". Received: key_row_splits.shape=\[2\], query_row_splits.shape=\[3\]"
    with native.backend(backend), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _of_unknown_shapes()(*map(tf.constant, tensors))


@needs_native
@pytest.mark.parametrize(
    ("place", "shape", "message"),
    [
        (0, [5, 24], r"`query` must have shape \[rows, heads, head size\]. Received: query.shape"),
        (1, [6, 3, 3, 8], "`key_value` must have shape .* Received: key_value.shape"),
        (1, [6, 2, 2, 8], r"the heads and .* of `query`. Received: key_value.shape=\[6,2,2,8\]"),
    ],
)
def test_other_shapes_are_refused_when_a_graph_runs(place, shape, message):
    tensors, _ = _case([3, 2], [3, 3])
    tensors[place] = tf.zeros(shape)
    with native.backend("native"), pytest.raises(tf.errors.InvalidArgumentError, match=message):
        _of_unknown_shapes()(*map(tf.constant, tensors))


@pytest.mark.parametrize(
    "function", [varlen_cross_attention, with_rule(ops.varlen_cross_attention_reference)]
)
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"query": tf.zeros([5, 1, 3, 4])}, ValueError, "`query` must have shape"),
        ({"query": tf.zeros([5, 3, 4], tf.float64)}, TypeError, "float32, bfloat16 or float16"),
        ({"key_value": tf.zeros([6, 3, 3, 4])}, ValueError, r"`key_value` must .*\[tokens, 2, 3,"),
        ({"key_value": tf.zeros([6, 2, 2, 4])}, ValueError, "the heads and the head size of"),
        ({"key_value": tf.zeros([6, 2, 3, 4], tf.float16)}, TypeError, "the dtype of `query`"),
        ({"query_row_splits": [0.0, 5.0]}, TypeError, "`query_row_splits` must have dtype int32"),
        ({"key_row_splits": [[0, 6]]}, ValueError, "`key_row_splits` must have shape"),
        ({"key_row_splits": [0, 3, 6]}, ValueError, "must have the length of `query_row_splits`"),
        ({"dropout_rate": 0.1}, ValueError, "`seed` must be"),
        ({"compute_dtype": "float16"}, ValueError, '`compute_dtype` must be "bfloat16", or None'),
        ({"window_size": 1}, ValueError, "`rule` must have no .*`window_size`"),
    ],
)
def test_bad_arguments_are_refused(function, changes, error, message):
    arguments = {
        "query": tf.zeros([5, 3, 4]),
        "key_value": tf.zeros([6, 2, 3, 4]),
        "query_row_splits": [0, 5],
        "key_row_splits": [0, 6],
    }
    with pytest.raises(error, match=message):
        function(**arguments | changes)
