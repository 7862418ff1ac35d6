"""What a dataset or graph calls ends with it, and is there as long as either is used."""

import gc
import weakref

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import from_generator, numpy_function


class Counter:
    """Counts from a number that it holds."""

    def __init__(self, first):
        self.first = first

    def add(self, values):
        return values + self.first

    def pairs(self):
        return iter([(self.first, 1), (self.first, 2)])


def mapped(counter):
    numbers = tf.data.Dataset.range(3)
    return numbers.map(lambda x: numpy_function(counter.add, [x], tf.int64)).batch(2)


def in_nested_datasets(counter):
    def inner(x):
        numbers = tf.data.Dataset.from_tensors(x)
        return numbers.map(lambda x: numpy_function(counter.add, [x], tf.int64))

    return tf.data.Dataset.range(3).flat_map(inner).batch(2)


def generated(counter):
    pair = (tf.TensorSpec([], tf.int64), tf.TensorSpec([], tf.int64))
    return from_generator(counter.pairs, pair).map(tf.add).batch(3)


def test_a_function_ends_with_its_dataset():
    for make, expected in (
        (mapped, [[5, 6], [7]]),
        (in_nested_datasets, [[5, 6], [7]]),
        (generated, [[6, 7]]),
    ):
        counter = Counter(5)
        ends = weakref.ref(counter)
        batches = iter(make(counter))
        del counter
        gc.collect()
        # The iterator alone keeps the function.
        assert [batch.tolist() for batch in map(np.asarray, batches)] == expected
        del batches
        gc.collect()
        assert ends() is None, make.__name__


def test_a_traced_function_keeps_what_it_calls():
    """Also if it was traced within another one that is no longer there."""
    counter = Counter(5)
    ends, one = weakref.ref(counter), tf.constant(1, tf.int64)
    inner = [tf.function(lambda x, add=counter.add: numpy_function(add, [x], tf.int64))]
    del counter
    outer = tf.function(lambda x: 2 * inner[0](x))
    assert int(outer(one)) == 12
    del outer
    gc.collect()
    assert int(tf.function(lambda x: 3 * inner[0](x))(one)) == 18
    inner.clear()
    gc.collect()
    assert ends() is None


def test_a_graph_without_eager_mode_keeps_what_it_calls():
    with tf.Graph().as_default() as graph:
        result = numpy_function(Counter(5).add, [tf.constant(1, tf.int64)], tf.int64)
    gc.collect()
    with tf.compat.v1.Session(graph=graph) as session:
        assert session.run(result) == 6


def test_eager_calls_are_calls():
    counter = Counter(5)
    assert int(numpy_function(counter.add, [tf.constant(2, tf.int64)], tf.int64)) == 7
    ends = weakref.ref(counter)
    del counter
    gc.collect()
    assert ends() is None
