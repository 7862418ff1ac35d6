"""The seeds of dropout: one stream per layer, a new seed for each use, saved with the model."""

import keras
import tensorflow as tf

# An odd constant near 2^64 / golden ratio, so that the keys of consecutive replicas are far apart.
_REPLICA_STRIDE = -7046029254386353131


class DropoutSeed:
    """Draws int64 seeds for the counter-based dropout of `bert_tf.ops`.

    The state is a Keras `SeedGenerator`, a variable of the layer that owns it. It is saved in
    checkpoints, so a resumed run draws the same masks as an uninterrupted one. Replicas of a
    `tf.distribute` strategy share the state but not the seeds: otherwise they would drop the same
    units for different examples.

    Args:
        seed: Seed of the stream. None draws a seed.
    """

    def __init__(self, seed: int | None = None):
        self.generator = keras.random.SeedGenerator(seed)

    def next(self) -> tf.Tensor:
        """Returns a scalar int64 that no earlier call on this replica has returned."""
        state = tf.cast(self.generator.next(), tf.int64)  # [2]: seed, counter
        replica = tf.distribute.get_replica_context()
        stream = replica.replica_id_in_sync_group if replica else 0
        return (
            tf.bitwise.left_shift(state[0], tf.constant(32, tf.int64))
            + state[1]
            + tf.cast(stream, tf.int64) * tf.constant(_REPLICA_STRIDE, tf.int64)
        )
