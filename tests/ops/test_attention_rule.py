"""AttentionRule: what a rule says, and attention to some rows only."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from tests.ops.numpy_varlen_attention import MASKS, sees

IS_ATTENDED = np.array([[True, True, False, False, True, False]])


@pytest.mark.parametrize("mask", MASKS.values(), ids=str)
def test_sees(mask):
    places = tf.range(12)
    received = ops.AttentionRule(**mask).sees(places[:, tf.newaxis], places[tf.newaxis])
    np.testing.assert_array_equal(np.broadcast_to(received, [12, 12]), sees(12, **mask))


@pytest.mark.parametrize("causal", [False, True])
def test_sees_attended_rows(causal):
    places = tf.range(6)
    rule = ops.AttentionRule(causal=causal, attended_rows=tf.constant(IS_ATTENDED[0]))
    received = rule.sees(places[:, tf.newaxis], places[tf.newaxis], IS_ATTENDED)
    expected = np.tri(6, dtype=bool) | IS_ATTENDED if causal else IS_ATTENDED
    np.testing.assert_array_equal(
        np.broadcast_to(received, [6, 6]), np.broadcast_to(expected, [6, 6])
    )


@pytest.mark.parametrize("causal", [False, True])
def test_attention_to_some_rows_is_that_of_the_mask(causal):
    lengths, is_attended = [4, 0, 6], np.array([1, 1, 0, 0, 1, 1, 1, 0, 0, 0], bool)
    qkv = np.random.default_rng(0).standard_normal([10, 3, 2, 8]).astype(np.float32)
    rule = ops.AttentionRule(causal=causal, attended_rows=tf.constant(is_attended))
    splits = np.cumsum([0, *lengths])
    received = ops.varlen_attention(qkv, splits, rule=rule).numpy()
    for start, end in zip(splits, splits[1:]):
        q, k, v = np.moveaxis(qkv[start:end].astype(np.float64), 1, 0)
        attended = is_attended[start:end]
        visible = np.tri(end - start, dtype=bool) | attended if causal else attended
        scores = np.where(visible, np.einsum("qnd,knd->nqk", q, k) / np.sqrt(8), -np.inf)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e9))
        weights /= weights.sum(axis=-1, keepdims=True)
        expected = np.einsum("nqk,knd->qnd", weights, v)
        np.testing.assert_allclose(received[start:end], expected, atol=1e-5)


def test_rules_that_do_not_fit_are_refused():
    rows = tf.constant([True])
    with pytest.raises(UserError, match="`attended_rows` must be None with a window"):
        ops.AttentionRule(attended_rows=rows, window_size=1)
    with pytest.raises(UserError, match="`attended_rows` must be None with a window"):
        ops.AttentionRule(attended_rows=rows, distance_bias=tf.zeros([1, 3]))
    rule = ops.AttentionRule(attended_rows=rows)
    with pytest.raises(ValueError, match="`rule.attended_rows` must be None"):
        ops.quantized_attention(tf.zeros([1, 3, 1, 4]), [0, 1], rule)
