"""The seeds of dropout: one stream a layer, a new seed at every use, saved with the model."""

import keras
import tensorflow as tf

# An odd constant near 2^64 / golden ratio: consecutive replicas get keys far apart.
_REPLICA_STRIDE = -7046029254386353131


class DropoutSeed:
    """Draws int64 seeds for the counter-based dropout of `bert_tf.ops`.

    The state is a Keras `SeedGenerator`: a variable of the layer that owns it, so checkpoints carry
    it on and a resumed run draws the masks the unbroken one would have drawn. Replicas of a
    `tf.distribute` strategy share the state but not the seeds: each sees other examples, and would
    otherwise drop the same units.

    Args:
        seed: Start of the stream; None draws one.
    """

    def __init__(self, seed: int | None = None):
        self.generator = keras.random.SeedGenerator(seed)

    def next(self) -> tf.Tensor:
        """A scalar int64 that no earlier call on this replica gave."""
        state = tf.cast(self.generator.next(), tf.int64)  # [2]: seed, counter
        replica = tf.distribute.get_replica_context()
        stream = replica.replica_id_in_sync_group if replica else 0
        return (
            tf.bitwise.left_shift(state[0], tf.constant(32, tf.int64))
            + state[1]
            + tf.cast(stream, tf.int64) * tf.constant(_REPLICA_STRIDE, tf.int64)
        )
