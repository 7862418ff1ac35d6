"""bert_tf's pre-training step in bfloat16, as `run_pretraining.py` does it, on a GPU where one is.

`BERT_TF_OPS` of the process says which ops.
"""

import keras
import tensorflow as tf

import bert_tf
from bert_tf.ops import native

from . import keras_common
from .base import LEARNING_RATE, Peer
from .ours import TrainingTask

_SEED = 0


class OursBFloat16(Peer):
    """`BertPretrainer` under the policy mixed_bfloat16, random weights."""

    def __init__(self, setup):
        super().__init__(setup)
        self._gpus = tf.config.list_physical_devices("GPU")
        if not self._gpus:
            keras_common.set_threads(setup.threads)
        keras.config.set_dtype_policy("mixed_bfloat16")

    @property
    def version(self):
        return f"{bert_tf.ops.active_backend()} ops, TensorFlow {tf.__version__}"

    def training(self, batches, variant, config, steps):
        """variant: "graph" or "xla"; `steps` optimizer steps make one run."""
        if self._gpus and bert_tf.ops.active_backend() == "native" and not native.has_gpu_kernels():
            raise RuntimeError(
                "the GPU kernels are not built or do not fit this TensorFlow: "
                "`make ops CUDA_HOME=/usr/local/cuda` builds them"
            )
        keras.utils.set_random_seed(_SEED)
        model = bert_tf.BertPretrainer(bert_tf.BertBackbone(bert_tf.BertConfig(**config)))
        model.compile(
            bert_tf.training.AdamWeightDecay(learning_rate=LEARNING_RATE),
            jit_compile=variant == "xla",
        )
        return TrainingTask(model, batches[0], steps)

    def device_memory(self, reset):
        """The most bytes of tensors on the GPU since the last reset; None without one."""
        if not self._gpus:
            return None
        name = "GPU:0"
        if reset:
            tf.config.experimental.reset_memory_stats(name)
        return tf.config.experimental.get_memory_info(name)["peak"]
