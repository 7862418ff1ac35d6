"""What the peers on TensorFlow share: threads, frozen graphs, the pace of a call."""

import numpy as np
import tensorflow as tf

from .. import memory_use
from .base import Batch, InferenceTask, MatmulTask

ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")

_ROWS_IN_A_GRAPH = 1024
_MOST_IN_A_ROW = 32


def set_threads(threads: int) -> None:
    """Must come before TensorFlow's first op."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def constants(batch: Batch) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in batch.items()}


def signature(mask_dtype) -> dict[str, tf.TensorSpec]:
    """Batches of any shape: one trace serves all arrangements."""
    dtypes = (tf.int32, tf.int32, mask_dtype)
    return {
        name: tf.TensorSpec([None, None], dtype, name=name)
        for name, dtype in zip(ENCODER_INPUTS, dtypes)
    }


def frozen(function, spec, threads: int):
    """The same function with its weights as constants, as an exported graph has them.

    It runs in a session: a `ConcreteFunction` with constants of this size would hold them many
    times over (9 GiB for BERT-base).

    Args:
        function: From a dictionary of tensors to a tuple of tensors.
        spec: Dictionary of `tf.TensorSpec`.
        threads: Of one call.

    Returns:
        A function from a dictionary of arrays to a list of arrays.
    """
    graph_def, feeds, fetches = _frozen_graph(function, spec)
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


def _frozen_graph(function, spec):
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    concrete = tf.function(function).get_concrete_function(spec)
    constant = convert_variables_to_constants_v2(concrete)
    return (
        constant.graph.as_graph_def(),
        [tensor.name for tensor in constant.inputs],  # sorted, as a dictionary is flattened
        [tensor.name for tensor in constant.outputs],
    )


def inference_task(model, variant: str, batches: list[Batch], mask_dtype) -> InferenceTask:
    """A task over one model; tensors for a function, arrays for a frozen graph's session."""
    feeds = []
    for batch in batches:
        feed = {name: batch[name] for name in ENCODER_INPUTS}
        feed["padding_mask"] = feed["padding_mask"].astype(mask_dtype.as_numpy_dtype)
        feeds.append(feed if variant == "frozen" else constants(feed))
    return InferenceTask(until_finished(model), feeds)


def matmul_task(multiply, x: np.ndarray) -> MatmulTask:
    """A matmul in a graph, as in a model; small ones several times in a row, so that the call of
    the graph does not count.

    Args:
        multiply: A function from x to y.
        x: `[M, K]`.
    """
    calls = max(1, min(_MOST_IN_A_ROW, _ROWS_IN_A_GRAPH // len(x)))
    # TensorFlow leaves out what nobody asks for, and computes once what is asked for twice: so each
    # has an input of its own, and a number of each result is returned.
    inputs = [tf.constant(x) for _ in range(calls)]

    @tf.function
    def multiply_all(inputs):
        results = [multiply(x) for x in inputs]
        return results[-1], [y[0, 0] for y in results]

    def run():
        return multiply_all(inputs)[0]

    return MatmulTask(run, calls)


def until_finished(model):
    """The model, waited for, should its computation be deferred."""

    def call(feed):
        outputs = model(feed)
        np.asarray(outputs[1])  # the small output
        return outputs

    return call
