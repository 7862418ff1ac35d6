"""FlatFunction: the structures that go in and come out, and how often it is traced."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.flat_functions import FlatFunction


class Both(NamedTuple):
    rows: tf.RaggedTensor
    absent: None
    total: tf.Tensor


def test_structures_of_any_sizes():
    traces = []

    def function(texts, ids):
        traces.append(1)
        rows = tf.strings.unicode_decode(texts["b"], "UTF-8")
        nested = tf.RaggedTensor.from_row_lengths(ids, ids.nrows()[tf.newaxis])
        return Both(rows, None, tf.reduce_sum(ids)), {"n": nested, "a": [texts["a"]]}

    strings = tf.TensorSpec([None], tf.string)
    signature = [{"a": strings, "b": strings}, tf.RaggedTensorSpec([None, None], tf.int32)]
    flat = FlatFunction(function, signature)
    for lengths in ([2, 0, 1], [], [5]):
        ids = tf.RaggedTensor.from_row_lengths(np.arange(sum(lengths), dtype=np.int32), lengths)
        ids = ids.with_row_splits_dtype(tf.int64)
        # The order of the names is not that of the signature.
        texts = {"b": tf.constant(["é", "xy"]), "a": tf.constant(["a"] * len(lengths), tf.string)}
        expected = function(texts, ids)
        traces.clear()
        both, others = flat(texts, ids)
        assert (type(both), both.absent) == (Both, None)
        assert both.rows.to_list() == expected[0].rows.to_list()
        assert int(both.total) == int(expected[0].total)
        assert others["n"].to_list() == expected[1]["n"].to_list()
        assert others["a"][0].numpy().tolist() == [b"a"] * len(lengths)
        assert len(traces) == (lengths == [2, 0, 1])


def test_functions_run_eagerly():
    flat = FlatFunction(lambda x: int(x) + 1, [tf.TensorSpec([], tf.int32)])
    tf.config.run_functions_eagerly(True)
    try:
        assert flat(tf.constant(2)) == 3
    finally:
        tf.config.run_functions_eagerly(False)
