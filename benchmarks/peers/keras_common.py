"""Helpers of the TensorFlow peers: threads, constant graphs and tasks."""

import numpy as np
import tensorflow as tf

from .. import memory_use
from ..workloads import ENCODER_INPUTS
from . import base
from .base import Batch, Peer, Task

_ROWS_IN_A_GRAPH = 1024
_MOST_IN_A_ROW = 32


def set_threads(threads: int) -> None:
    """Sets the threads of TensorFlow; must be called before its first op."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


class TensorFlowPeer(Peer):
    """A peer that computes with TensorFlow; `_model(variant, precision)` is its encoder."""

    version = tf.__version__
    mask_dtype = tf.bool

    def __init__(self, setup):
        super().__init__(setup)
        set_threads(setup.threads)

    def compiled(self, encode, variant):
        """Returns the encoder for any shape: a function, or for "constants" a constant graph."""
        dtypes = (tf.int32, tf.int32, self.mask_dtype)
        signature = {
            name: tf.TensorSpec([None, None], dtype, name=name)
            for name, dtype in zip(ENCODER_INPUTS, dtypes)
        }
        if variant == "constants":
            return constant_graph(encode, signature, self.setup.threads)
        return tf.function(encode, input_signature=[signature])

    def inference(self, batches, variant):
        return inference_task(self._model(variant), variant, batches, self.mask_dtype)

    def inference_bfloat16(self, batches, variant):
        precision, variant = variant.split(", ")
        model = self._model(variant, precision)
        return inference_task(model, variant, batches, self.mask_dtype)


def constant_graph(function, spec, threads: int):
    """Converts a function of a dictionary of tensors to one of a dictionary of arrays.

    Its weights become constants of a graph, which runs in a session, as a `ConcreteFunction` would
    hold several copies of them (9 GiB for BERT-base).
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


def inference_task(model, variant: str, batches: list[Batch], mask_dtype=tf.bool) -> Task:
    """Creates a task with tensors for a function, or with arrays for a constant graph."""

    def encode(feed):
        outputs = model(feed)
        np.asarray(outputs[1])  # waits for the computation; this is the small output
        return outputs

    feeds = []
    for batch in batches:
        feed = {name: batch[name] for name in ENCODER_INPUTS}
        feed["padding_mask"] = feed["padding_mask"].astype(mask_dtype.as_numpy_dtype)
        feeds.append(feed if variant == "constants" else tf.nest.map_structure(tf.constant, feed))
    return base.inference_task(encode, feeds)


def matmul_task(multiply, x: np.ndarray | tf.Tensor) -> Task:
    """Creates a task with `multiply`, a function from x `[M, K]` to y, in a graph, as in a model.

    The graph repeats small matmuls, so that the overhead of its call hardly counts.
    """
    calls = max(1, min(_MOST_IN_A_ROW, _ROWS_IN_A_GRAPH // len(x)))
    # TensorFlow removes unused operations and merges equal ones, so each matmul has a different
    # input tensor, and one number of each result is returned.
    inputs = [tf.constant(x) for _ in range(calls)]

    @tf.function
    def multiply_all(inputs):
        results = [multiply(x) for x in inputs]
        return results[-1], [y[0, 0] for y in results]

    return base.matmul_task(lambda: multiply_all(inputs)[0], calls)


def tokenizer_task(tokenize, texts) -> Task:
    """Creates a task with a function from texts to ragged ids, in a graph."""
    texts = tf.constant(texts)
    tokenize = tf.function(tokenize, input_signature=[tf.TensorSpec([None], tf.string)])

    def outputs():
        ids = tokenize(texts)
        return {"ids": ids.flat_values.numpy(), "row_splits": ids.row_splits.numpy()}

    return Task(lambda: int(tokenize(texts).row_splits[-1]), outputs)


def assign_heads(tensors, variables) -> None:
    """Assigns the weights of the pre-training heads to variables in the order of `base.HEADS`."""
    for name, variable in zip(base.HEADS, variables, strict=True):
        variable.assign(tensors[name].T)  # Hugging Face stores dense weights as [out, in]
