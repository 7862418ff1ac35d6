"""The epochs of `fit` on texts in memory: all that the order of the rows and their masks depend on.

Glossary: `n` texts, `B` rows of a batch.
"""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.inputs.balanced_rows import deal_in_graph
from bert_tf.inputs.epoch_batches import EpochBatches


class TextEpochs(keras.callbacks.Callback):
    """The epoch that a dataset of texts is in. As a callback of `fit` it follows Keras's epochs.

    Datasets must not count how often they are read: under a strategy Keras reads them more often.

    Args:
        seed: The seed of the orders and masks.
        first: The first epoch.
        goes_on: Whether one pass over the data has all epochs, one after the other. It is for a
            `fit` whose `steps_per_epoch` says where Keras's epochs end.
    """

    def __init__(self, seed: int = 0, first: int = 0, goes_on: bool = False):
        super().__init__()
        self.seed = seed
        self.epoch = first
        self.goes_on = goes_on

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def numbers(self) -> tf.data.Dataset:
        """Returns a dataset of the epochs of a pass over the data, int64."""
        if self.goes_on:
            return tf.data.Dataset.range(self.epoch, np.iinfo(np.int64).max)

        def current(_):
            epoch = tf.numpy_function(lambda: np.int64(self.epoch), [], tf.int64)
            return tf.ensure_shape(epoch, [])

        return tf.data.Dataset.range(1).map(current)


class ReplicaShare:
    """The rows that the replicas of one worker compute, of batches that all replicas share.

    The rows are dealt so that all replicas have equal tokens. See `deal_rows`.

    Args:
        replicas: The number of replicas of all workers.
        first: The number of this worker's first replica.
        count: The number of this worker's replicas.
        parts: The number of parts that a replica's batch is computed in.
    """

    def __init__(self, replicas: int = 1, first: int = 0, count: int = 1, parts: int = 1):
        self.replicas = replicas
        self.first = first
        self.count = count
        self.parts = parts

    def of(self, batches: tf.data.Dataset, lengths: np.ndarray) -> tf.data.Dataset:
        """Returns one batch for each of the worker's replicas in place of each batch.

        Args:
            batches: Rows int64 `[B]` and their epoch, as `EpochBatches.of_epochs` returns them.
            lengths: The number of tokens of every row, int64 `[n]`.
        """

        def deal(rows, epoch):
            order, splits = deal_in_graph(tf.gather(lengths, rows), self.replicas, self.parts)
            rows = tf.gather(rows, order)

            def of_replica(replica):
                return rows[splits[replica] : splits[replica + 1]], epoch

            replicas = tf.data.Dataset.range(self.first, self.first + self.count)
            return replicas.map(of_replica)

        with tf.device("CPU:0"):
            lengths = tf.constant(lengths)
        return batches.flat_map(deal)


def numbered_batches(
    batches: EpochBatches, epochs: TextEpochs, share: ReplicaShare, lengths: np.ndarray | None
) -> tf.data.Dataset:
    """Returns a dataset of the rows of each batch, int64 `[B]`, and their epoch, int64.

    Args:
        batches: The batches that all replicas share.
        epochs: The epochs.
        share: What part of them is returned.
        lengths: The number of tokens of every row, int64 `[n]`; None with one replica.
    """
    numbers = batches.of_epochs(epochs.numbers())
    if share.replicas > 1:
        numbers = share.of(numbers, lengths)
    count = share.count * batches.steps_per_epoch
    count = tf.data.INFINITE_CARDINALITY if epochs.goes_on else count
    return numbers.apply(tf.data.experimental.assert_cardinality(count))
