"""Dropout with a counter-based random generator, whose state is saved."""

import keras
import tensorflow as tf

from bert_tf.layers.dropout_seed import DropoutSeed


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(keras.layers.Layer):
    """Sets a fraction of the elements to zero in training and scales the rest by `1 / (1 - rate)`.

    Unlike `keras.layers.Dropout`, it draws a different mask on each replica of a `tf.distribute`
    strategy.

    Args:
        rate: Fraction of the elements to set to zero, in [0, 1).
        seed: Seed of the random stream. None draws a seed.
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        self.seed = seed
        self._dropout_seed = DropoutSeed(seed)
        self.seed_generator = self._dropout_seed.generator
        self.built = True

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        seed = self._dropout_seed.next()
        return tf.nn.experimental.stateless_dropout(
            x, self.rate, seed=tf.stack([seed, tf.zeros([], tf.int64)]), rng_alg="philox"
        )

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
