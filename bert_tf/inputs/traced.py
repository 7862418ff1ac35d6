"""Functions of ragged tensors that are traced once, for calls outside of a graph.

Op by op, they would take longer than the network: they have hundreds of small ops.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from bert_tf.base.flat_functions import FlatFunction
from bert_tf.text.code_points import Pieces

STRINGS, SPLITS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)
IDS, PLACES = (tf.RaggedTensorSpec([None, None], dtype) for dtype in (tf.int32, tf.int64))
PIECES = Pieces(IDS, PLACES, PLACES, PLACES, PLACES)


def traced(function: Callable, signature: list) -> Callable:
    """Returns a function of options, which returns `function` of tensors of any sizes, traced once.

    Args:
        function: A function of options, then of tensors, then of options by name.
        signature: The specifications of the tensors.

    Example:
        >>> scaled = traced(lambda factor, x: factor * x, [tf.TensorSpec([None])])
        >>> scaled(2.0)(tf.constant([1.0, 2.0])).numpy()
        array([2., 4.], dtype=float32)
    """

    @functools.lru_cache(maxsize=8)
    def with_options(*options, **named):
        def call(*tensors):
            return function(*options, *tensors, **named)

        return FlatFunction(call, signature, device="CPU:0")

    return with_options
