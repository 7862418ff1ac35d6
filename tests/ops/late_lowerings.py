"""What test_xla.py runs in a process of its own, where the ops have not been loaded yet."""

import tensorflow as tf

from bert_tf import ops
from bert_tf.ops import native


def compile_another_program_first():
    assert native._loaded is None
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)
    with ops.backend("native"):
        tf.function(ops.fused_bias_gelu, jit_compile=True)(tf.ones([2, 3]), tf.ones([3]))
