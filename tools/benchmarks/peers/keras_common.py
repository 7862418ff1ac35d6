"""Helpers of the TensorFlow peers: threads, constant graphs and tasks."""

import numpy as np
import tensorflow as tf

from .. import memory_use
from .base import Batch, InferenceTask, MatmulTask

ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")

_ROWS_IN_A_GRAPH = 1024
_MOST_IN_A_ROW = 32


def set_threads(threads: int) -> None:
    """Sets the threads of TensorFlow; must be called before its first op."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def constants(batch: Batch) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in batch.items()}


def signature(mask_dtype) -> dict[str, tf.TensorSpec]:
    """Returns the signature for batches of any shape, so that one trace is enough."""
    dtypes = (tf.int32, tf.int32, mask_dtype)
    return {
        name: tf.TensorSpec([None, None], dtype, name=name)
        for name, dtype in zip(ENCODER_INPUTS, dtypes)
    }


def constant_graph(function, spec, threads: int):
    """Converts a function to a graph with its weights as constants.

    The graph runs in a session, as a `ConcreteFunction` would hold several copies of the constants
    (9 GiB for BERT-base).

    Args:
        function: A function from a dictionary of tensors to a tuple of tensors.
        spec: A dictionary of `tf.TensorSpec`.
        threads: Number of threads per call.

    Returns:
        A function from a dictionary of arrays to a list of arrays.
    """
    graph_def, feeds, fetches = _constant_graph_def(function, spec)
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(graph_def, name="")
    del graph_def
    memory_use.give_back()
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, inter_op_parallelism_threads=1
    )
    session = tf.compat.v1.Session(graph=graph, config=config)
    call = session.make_callable(fetches, feed_list=feeds)

    def run(feed):
        return call(*(feed[name] for name in sorted(feed)))

    return run


def _constant_graph_def(function, spec):
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete = tf.function(function).get_concrete_function(spec)
    constant = convert_variables_to_constants_v2(concrete)
    return (
        constant.graph.as_graph_def(),
        [tensor.name for tensor in constant.inputs],  # sorted by name, as tf.nest flattens
        [tensor.name for tensor in constant.outputs],
    )


def inference_task(model, variant: str, batches: list[Batch], mask_dtype) -> InferenceTask:
    """Creates a task with tensors for a function, or with arrays for a constant graph."""
    feeds = []
    for batch in batches:
        feed = {name: batch[name] for name in ENCODER_INPUTS}
        feed["padding_mask"] = feed["padding_mask"].astype(mask_dtype.as_numpy_dtype)
        feeds.append(feed if variant == "frozen" else constants(feed))
    return InferenceTask(until_finished(model), feeds)


def matmul_task(multiply, x: np.ndarray) -> MatmulTask:
    """Creates a task with a matmul in a graph, as in a model.

    The graph repeats small matmuls, so that the overhead of its call hardly counts.

    Args:
        multiply: A function from x to y.
        x: `[M, K]`.
    """
    calls = max(1, min(_MOST_IN_A_ROW, _ROWS_IN_A_GRAPH // len(x)))
    # TensorFlow removes unused operations and merges equal ones, so each matmul has a different
    # input tensor, and one number of each result is returned.
    inputs = [tf.constant(x) for _ in range(calls)]

    @tf.function
    def multiply_all(inputs):
        results = [multiply(x) for x in inputs]
        return results[-1], [y[0, 0] for y in results]

    def run():
        return multiply_all(inputs)[0]

    return MatmulTask(run, calls)


def until_finished(model):
    """Wraps a model so that a call waits until its computation has finished."""

    def call(feed):
        outputs = model(feed)
        np.asarray(outputs[1])  # the small output
        return outputs

    return call
