"""Windows through a model in batches of bounded size, in the graph: memory is that of a batch."""

from collections.abc import Callable

import tensorflow as tf

# Tokens of a batch, padding counted; enough for the matmuls to run at full speed.
TOKENS_AT_ONCE = 8192


def in_batches(
    function: Callable[[dict[str, tf.Tensor]], tf.Tensor], features: dict[str, tf.Tensor]
) -> tf.Tensor:
    """Returns `function(features)`, computed for a bounded number of rows at a time.

    Args:
        function: Takes features and returns one tensor with as many rows.
        features: Tensors `[S, T]` of at least one row.
    """
    rows, length = tf.unstack(tf.shape(next(iter(features.values()))), num=2)
    size = tf.maximum(1, TOKENS_AT_ONCE // tf.maximum(1, length))

    def batch(begin):
        end = tf.minimum(rows, begin + size)
        return function({name: values[begin:end] for name, values in features.items()})

    # Nearly every request is one batch: it runs outside of the loop, at its full speed.
    first = batch(0)
    _, result = tf.while_loop(
        lambda begin, _: begin < rows,
        lambda begin, parts: (begin + size, tf.concat([parts, batch(begin)], axis=0)),
        (size, first),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, *first.shape[1:]])),
        parallel_iterations=1,
    )
    return result
