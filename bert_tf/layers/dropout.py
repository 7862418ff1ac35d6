"""Dropout with a counter-based random generator, whose state is saved."""

import keras
import tensorflow as tf

from bert_tf.base.keras_compat import QuickLayer, quick_variables

# An odd constant near 2^64 / golden ratio, so that the keys of consecutive replicas are far apart.
_REPLICA_STRIDE = -7046029254386353131


def new_seed_generator(seed: int | None = None) -> keras.random.SeedGenerator:
    """Returns the generator of a layer, which Keras saves with it. None draws a seed."""
    with quick_variables():
        return keras.random.SeedGenerator(seed)


def next_seed(generator: keras.random.SeedGenerator) -> tf.Tensor:
    """Draws a seed for counter-based dropout, a scalar int64, new on this replica.

    The state of the generator is a variable of the layer that owns it. It is saved in checkpoints,
    so a resumed run draws the same masks as an uninterrupted one. Replicas of a `tf.distribute`
    strategy share the state but not the seeds: otherwise they would drop the same units for
    different examples.
    """
    # `generator.next()` would copy the state before it counts, which TensorFlow does not need.
    state = tf.cast(tf.convert_to_tensor(generator.state), tf.int64)  # [2]: seed, counter
    generator.state.assign(state + tf.constant([0, 1], tf.int64))
    seed = tf.bitwise.left_shift(state[0], tf.constant(32, tf.int64)) + state[1]
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:
        stream = tf.cast(replica.replica_id_in_sync_group, tf.int64)
        seed += stream * tf.constant(_REPLICA_STRIDE, tf.int64)
    return seed


def stateless_dropout(x: tf.Tensor, rate: float, seed: tf.Tensor) -> tf.Tensor:
    """Drops elements of x as a function of the seed, a scalar int64."""
    return tf.nn.experimental.stateless_dropout(
        x, rate, seed=tf.stack([seed, tf.zeros([], tf.int64)]), rng_alg="philox"
    )


@keras.saving.register_keras_serializable(package="bert_tf")
class Dropout(QuickLayer):
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
        self.seed_generator = new_seed_generator(seed)
        self.built = True

    def call(self, x, training=False):
        if not training or not self.rate:
            return x
        return stateless_dropout(x, self.rate, next_seed(self.seed_generator))

    def compute_output_shape(self, input_shape):
        return input_shape
