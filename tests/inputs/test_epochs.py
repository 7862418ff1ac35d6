"""What each replica gets of the batches of texts: together all rows, whatever shares them."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.inputs.epoch_batches import EpochBatches
from bert_tf.inputs.epochs import ReplicaShare, TextEpochs, numbered_batches

LENGTHS = np.random.default_rng(0).integers(3, 40, 203)
LIMITS = [{"batch_size": 64}, {"token_budget": 1200}]


def read(limit, epochs, replicas=1, first=0, count=1):
    """The rows of each replica's batches, one list per step."""
    batches = EpochBatches(LENGTHS, **limit, seed=epochs.seed)
    share = ReplicaShare(replicas, first, count)
    dataset = numbered_batches(batches, epochs, share, LENGTHS)
    assert len(dataset) == batches.steps_per_epoch * count
    rows = [rows.tolist() for rows, _ in dataset.as_numpy_iterator()]
    return [rows[start : start + count] for start in range(0, len(rows), count)]


@pytest.mark.parametrize("limit", LIMITS, ids=str)
@pytest.mark.parametrize("replicas", [1, 2, 4])
def test_replicas_share_the_batches_of_one_device(limit, replicas):
    batches = EpochBatches(LENGTHS, **limit, seed=3).of_epoch(5)
    steps = read(limit, TextEpochs(seed=3, first=5), replicas, 0, replicas)
    assert [sorted(sum(step, [])) for step in steps] == [sorted(rows) for rows in batches]
    for step in steps:
        if min(map(len, step)) >= 16 and replicas > 1:
            tokens = [LENGTHS[rows].sum() for rows in step]
            assert np.abs(np.array(tokens) / np.mean(tokens) - 1).max() <= 0.05


@pytest.mark.parametrize("limit", LIMITS, ids=str)
def test_workers_agree(limit):
    """Two workers with two replicas each have the rows of one worker with four."""
    epochs = TextEpochs(seed=3)
    workers = [read(limit, epochs, 4, first, 2) for first in (0, 2)]
    together = [first + second for first, second in zip(*workers)]
    assert together == read(limit, epochs, 4, 0, 4)


def test_the_epoch_is_kerass_however_often_the_data_are_read():
    epochs = TextEpochs(seed=3, first=1)
    first = read(LIMITS[0], epochs)
    tf.random.set_seed(1)
    assert read(LIMITS[0], epochs) == first
    epochs.on_epoch_begin(2)
    second = read(LIMITS[0], epochs)
    assert second != first
    assert read(LIMITS[0], TextEpochs(seed=3, first=2)) == second


def test_a_pass_can_go_on_over_epochs():
    batches = EpochBatches(LENGTHS, batch_size=64, seed=3)
    epochs = TextEpochs(seed=3, first=1, goes_on=True)
    dataset = numbered_batches(batches, epochs, ReplicaShare(), None)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    found = [(rows.tolist(), epoch) for rows, epoch in dataset.take(8).as_numpy_iterator()]
    expected = [(rows.tolist(), e) for e in (1, 2) for rows in batches.of_epoch(e)]
    assert found == expected[:8]
