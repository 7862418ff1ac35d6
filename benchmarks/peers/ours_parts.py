"""The parts of a training step of bert_tf, and whole steps, for `tools/planning/calibration.py`.

With TF_CONFIG in its environment, the process is a worker of `MultiWorkerMirroredStrategy`.

Glossary: R rows, H hidden size, F feed-forward size, V vocabulary, B sequences, T length, N heads,
D head size.
"""

import functools
import os

import numpy as np
import tensorflow as tf

import bert_tf
from bert_tf import ops

from .. import workloads
from . import keras_common
from .base import LEARNING_RATE, Peer, Task
from .ours import training_task

_DROPOUT = 0.1  # BertConfig's defaults
_TENSORS = 16  # in a list that is reduced


class OursParts(Peer):
    """Ops with their gradients, as in a step of `BertPretrainer` in float32."""

    def __init__(self, setup):
        super().__init__(setup)
        keras_common.set_threads(setup.threads)
        self._strategy = tf.distribute.get_strategy()
        if "TF_CONFIG" in os.environ:
            self._strategy = bert_tf.training.make_strategy("multi_worker_mirrored")

    @property
    def version(self):
        return f"{bert_tf.ops.active_backend()} ops, TensorFlow {tf.__version__}"

    def nothing(self):
        """A call of a graph, which the other parts contain too."""
        return _task(tf.function(tf.identity), tf.zeros([]))

    def matmul(self, shape):
        """[R, K] x [K, N] and its two gradients."""
        rows, depth, units = shape
        x, kernel, dy = _random([rows, depth]), _random([depth, units]), _random([rows, units])

        @tf.function
        def multiply(x, kernel, dy):
            dx = tf.matmul(dy, kernel, transpose_b=True)
            return tf.matmul(x, kernel), dx, tf.matmul(x, dy, transpose_a=True)

        return _task(multiply, x, kernel, dy)

    def attention(self, shape):
        sequences, length, heads, size = shape
        qkv = _random([sequences * length, 3, heads, size])
        splits = tf.range(0, sequences * length + 1, length)

        def attend(qkv):
            return ops.varlen_attention(qkv, splits, _DROPOUT, tf.constant(1, tf.int64))

        return _with_gradient(attend, qkv)

    def gelu(self, shape):
        return _with_gradient(ops.fused_bias_gelu, _random(shape), _random(shape[-1:]))

    def layer_norm(self, shape):
        vector = shape[-1:]

        def norm(x, residual, bias, gamma, beta):
            seed = tf.constant(1, tf.int64)
            return ops.fused_residual_layer_norm(
                x, residual, bias, gamma, beta, dropout_rate=_DROPOUT, seed=seed
            )

        vectors = [_random(vector) for _ in range(3)]
        return _with_gradient(norm, _random(shape), _random(shape), *vectors)

    def copy(self, shape):
        """The bias of a dense layer, as a plain pass over memory."""
        return _with_gradient(tf.nn.bias_add, _random(shape), _random(shape[-1:]))

    def logits(self, shape):
        """What follows the last matmul, [R, V]."""
        ids = tf.zeros(shape[:1], tf.int32)
        weights = tf.fill(shape[:1], 1 / shape[0])

        @tf.function
        def run(logits, bias):
            with tf.GradientTape() as tape:
                tape.watch([logits, bias])
                z = tf.nn.bias_add(logits, bias)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, z)
                loss = tf.reduce_sum(losses * weights)
            return tape.gradient(loss, [logits, bias]), tf.argmax(z, axis=-1)

        return _task(run, _random(shape), _random(shape[-1:]))

    def optimizer(self, shape):
        """AdamW on one variable, after the norm of its gradient."""
        variables = [tf.Variable(_random(shape)) for _ in range(2)]
        variables.append(tf.Variable(tf.ones(shape)))
        variable, mean, square = variables

        @tf.function
        def update(gradient):
            scale = 1 / tf.maximum(tf.linalg.global_norm([gradient]), 1.0)
            rate = tf.constant(LEARNING_RATE)
            ops.adam_weight_decay(variable, mean, square, gradient, rate, scale, 0.01)
            return scale

        return _task(update, _random(shape))

    def all_reduce(self, shape):
        """The sum over the workers of gradients of this many numbers."""
        part = max(1, shape[0] // _TENSORS)
        tensors = [_random([part]) for _ in range(_TENSORS)]

        def reduce():
            # The identities have a device, as gradients do.
            gradients = [tf.identity(tensor) for tensor in tensors]
            return tf.distribute.get_replica_context().all_reduce("SUM", gradients)

        return _task(tf.function(lambda: self._strategy.run(reduce)))

    def step(self, config, batch, length):
        """A training step on dense sequences, `batch` of them on this worker."""
        workload = workloads.Workload.dense(batch, length)
        batches = workloads.batches(workload, None, config["vocab_size"], training=True)
        return training_task(self._model(tuple(config.items())), batches[0])

    @functools.cache
    def _model(self, config):
        tf.keras.utils.set_random_seed(0)
        with self._strategy.scope():
            model = bert_tf.BertPretrainer(bert_tf.BertBackbone(bert_tf.BertConfig(**dict(config))))
            model.compile(bert_tf.training.AdamWeightDecay(learning_rate=LEARNING_RATE))
        return model


def _random(shape):
    return tf.constant(np.random.default_rng(0).standard_normal(shape, np.float32))


def _with_gradient(function, *arguments):
    """A function and the gradients of its arguments."""
    dy = tf.zeros_like(function(*arguments)) + 0.5

    @tf.function
    def run(dy, *arguments):
        with tf.GradientTape() as tape:
            tape.watch(arguments)
            y = function(*arguments)
        return y, tape.gradient(y, arguments, dy)

    return _task(run, dy, *arguments)


def _task(function, *arguments):
    """A task that is timed only: its outputs are not compared."""
    return Task(functools.partial(function, *arguments), dict)
