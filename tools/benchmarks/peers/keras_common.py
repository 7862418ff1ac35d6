"""What the peers on TensorFlow share: threads, frozen graphs, the pace of a call."""

import functools

import numpy as np
import tensorflow as tf

from .base import Batch, InferenceTask

ENCODER_INPUTS = ("token_ids", "segment_ids", "padding_mask")


def set_threads(threads: int) -> None:
    """Must come before TensorFlow's first op."""
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def constants(batch: Batch, names=None) -> dict[str, tf.Tensor]:
    return {name: tf.constant(value) for name, value in batch.items()
            if names is None or name in names}


def signature(mask_dtype) -> dict[str, tf.TensorSpec]:
    """Batches of any shape: one trace serves all arrangements."""
    dtypes = (tf.int32, tf.int32, mask_dtype)
    return {
        name: tf.TensorSpec([None, None], dtype, name=name)
        for name, dtype in zip(ENCODER_INPUTS, dtypes)
    }


def frozen(function, spec):
    """The same function with its weights as constants, as an exported graph has them."""
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    concrete = tf.function(function).get_concrete_function(spec)
    graph = convert_variables_to_constants_v2(concrete)

    @tf.function(input_signature=[spec])
    def run(feed):
        return tuple(graph(*tf.nest.flatten(feed)))  # both sort a dictionary by its keys

    return run


def inference_task(models: dict, variant: str, batches: list[Batch], mask_dtype) -> InferenceTask:
    """A task over `models[variant]`; the inputs are tensors already."""
    feeds = []
    for batch in batches:
        feed = constants(batch, ENCODER_INPUTS)
        feed["padding_mask"] = tf.cast(feed["padding_mask"], mask_dtype)
        feeds.append(feed)
    return InferenceTask(functools.partial(_finished, models[variant]), feeds)


def _finished(model, feed):
    outputs = model(feed)
    np.asarray(outputs[1])  # the small output: waits for the computation, should it be deferred
    return outputs
