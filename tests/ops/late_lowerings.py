"""The part of test_xla.py that runs in a new process, in which the ops are not loaded yet."""

import tensorflow as tf

from bert_tf import ops
from bert_tf.ops import loading


def compile_another_program_first():
    assert loading.loaded is None
    tf.function(lambda x: x + 1, jit_compile=True)(1.0)
    with ops.backend("native"):
        tf.function(ops.fused_bias_gelu, jit_compile=True)(tf.ones([2, 3]), tf.ones([3]))
