"""The pre-training step of bert_tf in bfloat16, as in `run_pretraining.py`, on a GPU if present.

The environment variable `BERT_TF_OPS` of the process chooses the ops.
"""

import keras
import tensorflow as tf

import bert_tf
from bert_tf.ops import native

from . import keras_common
from .base import LEARNING_RATE, Peer
from .ours import Ours, training_task


class OursBFloat16(Peer):
    """`BertPretrainer` with random weights under the policy mixed_bfloat16."""

    version = Ours.version

    def __init__(self, setup):
        super().__init__(setup)
        self._gpus = tf.config.list_physical_devices("GPU")
        if not self._gpus:
            keras_common.set_threads(setup.threads)
        keras.config.set_dtype_policy("mixed_bfloat16")

    def training(self, batches, variant, config, steps):
        """Creates a task with `steps` optimizer steps per run; variant is "graph" or "xla"."""
        if self._gpus and bert_tf.ops.active_backend() == "native" and not native.has_gpu_kernels():
            raise RuntimeError(
                "The GPU kernels must be built for this TensorFlow. Received: none. Build them "
                "with `make ops CUDA_HOME=/usr/local/cuda`."
            )
        keras.utils.set_random_seed(0)
        model = bert_tf.BertPretrainer(bert_tf.BertBackbone(bert_tf.BertConfig(**config)))
        model.compile(
            bert_tf.training.AdamWeightDecay(learning_rate=LEARNING_RATE),
            jit_compile=variant == "xla",
        )
        return training_task(model, batches[0], steps)

    def device_memory(self, reset):
        """Returns the peak MiB of tensors on the GPU since the last reset; None without a GPU."""
        if not self._gpus:
            return None
        if reset:
            tf.config.experimental.reset_memory_stats("GPU:0")
        return tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20
