"""The devices of a step together have the rows of its batch, dealt by tokens or in their order."""

import types

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.training.distribution.distributed_batches import DistributedBatches

DEVICES, ROWS = 4, 16  # per device
LENGTHS = np.random.default_rng(0).integers(3, 128, DEVICES * ROWS * 3)
STRATEGY = types.SimpleNamespace(num_replicas_in_sync=DEVICES)


def read(batch_size, start_step, num_shards, shard_index):
    """Rows of their number and their length, every so many of them for a shard."""
    rows = tf.data.Dataset.range(len(LENGTHS)).shard(num_shards, shard_index)
    rows = rows.skip(start_step * batch_size).batch(batch_size, drop_remainder=True)
    return rows.map(lambda numbers: (numbers, tf.gather(LENGTHS, numbers)))


def parts_of(step, workers, **options):
    """The numbers of the rows of every device in a step, `[DEVICES, ROWS]`."""
    batches = DistributedBatches(read, DEVICES * ROWS, STRATEGY, **options)
    local = DEVICES // workers
    found = []
    for worker in range(workers):
        dataset = batches.of_worker(step, workers, worker).take(local)
        found += [numbers.tolist() for numbers, _ in dataset.as_numpy_iterator()]
    return np.array(found)


def lengths(numbers, lengths):
    return lengths


@pytest.mark.parametrize("step", [0, 2])
def test_any_number_of_workers_deals_the_same_rows(step):
    plain = parts_of(step, 1)
    assert plain.ravel().tolist() == list(range(step * 64, step * 64 + 64))
    dealt = parts_of(step, 1, lengths=lengths)
    for workers in (2, 4):
        np.testing.assert_array_equal(parts_of(step, workers), plain)
        np.testing.assert_array_equal(parts_of(step, workers, lengths=lengths), dealt)
    assert sorted(dealt.ravel()) == plain.ravel().tolist()
    tokens = LENGTHS[dealt].sum(axis=1)
    assert np.abs(tokens / tokens.mean() - 1).max() <= 0.05
    before = LENGTHS[plain].sum(axis=1)
    assert np.abs(before / before.mean() - 1).max() > 0.05


def test_parts_are_balanced_too():
    dealt = parts_of(0, 2, lengths=lengths, parts=2)
    np.testing.assert_array_equal(
        np.sort(dealt, axis=1), np.sort(parts_of(0, 2, lengths=lengths), axis=1)
    )
    halves = LENGTHS[dealt].reshape(DEVICES, 2, -1).sum(axis=2)
    assert (np.abs(halves / halves.mean(axis=1, keepdims=True) - 1) <= 0.05).all()


def test_workers_with_shards_deal_among_their_own_devices():
    plain = parts_of(1, 2, by_rows=False)
    dealt = parts_of(1, 2, by_rows=False, lengths=lengths)
    for worker in (slice(0, 2), slice(2, 4)):
        assert sorted(dealt[worker].ravel()) == sorted(plain[worker].ravel())
        tokens = LENGTHS[dealt[worker]].sum(axis=1)
        assert np.abs(tokens / tokens.mean() - 1).max() <= 0.05


def test_a_reader_that_deals_gets_the_devices_of_its_worker():
    asked = []

    def deals(*arguments):
        asked.append(arguments)
        return tf.data.Dataset.range(1)

    batches = DistributedBatches(deals, 8, STRATEGY, deals=True)
    batches.of_worker(5, 2, 1)
    assert asked == [(2, 5, 4, range(2, 4))]
