"""Python functions in graphs and datasets that end with them.

TensorFlow keeps each function that a graph calls until the process ends, and so all that the
function refers to (https://github.com/tensorflow/tensorflow/issues/37653). Here, it keeps a
function of a few bytes, and the graphs or the dataset keep the other one.
"""

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf


def numpy_function(function: Callable, inputs: Sequence, dtypes: Any, stateful: bool = True) -> Any:
    """Returns what `tf.numpy_function` does; `function` lives as long as a graph that calls it."""
    if not tf.executing_eagerly():
        for graph in _graphs():
            _keep(graph, function)
        function = _weak(function)
    return tf.numpy_function(function, inputs, dtypes, stateful=stateful)


def from_generator(generator: Callable[[], Iterable], output_signature: Any) -> tf.data.Dataset:
    """Returns what `Dataset.from_generator` does; `generator` lives as long as the dataset.

    The datasets that are made of it, and their iterators, keep the dataset.
    """
    weak = _weak(generator)
    dataset = tf.data.Dataset.from_generator(weak, output_signature=output_signature)
    _keep(dataset, generator)
    return dataset


def _weak(function):
    reference = weakref.ref(function)

    def call(*args):
        return reference()(*args)

    return call


def _keep(owner, function):
    owner.bert_tf_functions = (*getattr(owner, "bert_tf_functions", ()), function)


def _graphs():
    """Yields the graph that is being made and those around it, but not the one of eager mode."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        if graph.building_function or not tf.compat.v1.executing_eagerly_outside_functions():
            yield graph
        outer = getattr(graph, "outer_graph", None)
        graph = None if outer is graph else outer
