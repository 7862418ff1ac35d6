"""Every epoch has every row once, in another order that the seed determines."""

import numpy as np
import pytest

from bert_tf.errors import ConfigError, UserError
from bert_tf.inputs.epoch_batches import EpochBatches

LENGTHS = np.random.default_rng(0).integers(3, 40, 200)
PARTS = np.random.default_rng(1).integers(3, 40, [200, 2])


def cost(rows, lengths, padded):
    parts = lengths[rows].reshape(len(rows), -1)  # [B] or [B, K] -> [B, K]
    return parts.max(axis=0).sum() * len(rows) if padded else parts.sum()


def rows_of(dataset):
    return [rows.tolist() for rows in dataset.as_numpy_iterator()]


@pytest.mark.parametrize("lengths", [LENGTHS, PARTS], ids=["single", "parts"])
@pytest.mark.parametrize("padded", [False, True])
def test_epochs_are_permutations_within_the_budget(lengths, padded):
    batches = EpochBatches(lengths, token_budget=150, padded=padded, seed=3)
    epochs = [batches.of_epoch(epoch) for epoch in range(4)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch)) == list(range(200))
        assert len(epoch) == batches.steps_per_epoch
        assert all(cost(rows, lengths, padded) <= 150 for rows in epoch)
        totals = lengths if lengths.ndim == 1 else lengths.sum(axis=1)
        spreads = [np.ptp(totals[rows]) for rows in epoch]
        assert np.mean(spreads) < np.ptp(totals) / 10
    firsts = {int(epoch[0][0]) for epoch in epochs}
    assert len(firsts) > 1  # not the same order in every epoch
    tokens = [totals[np.concatenate(epoch)].tolist() for epoch in epochs]
    assert tokens[0] != sorted(tokens[0], reverse=True)  # nor from the longest to the shortest


def test_rows_of_one_length_change_places():
    batches = EpochBatches(np.full(20, 5), token_budget=20)
    together = {frozenset(rows.tolist()) for epoch in range(5) for rows in batches.of_epoch(epoch)}
    assert len(together) > batches.steps_per_epoch


def test_a_row_above_the_budget_is_a_batch_of_its_own():
    batches = EpochBatches([2, 90, 3], token_budget=10)
    assert sorted(rows.tolist() for rows in batches.of_epoch(0)) == [[1], [2, 0]]


@pytest.mark.parametrize("limit", [{"batch_size": 7}, {"token_budget": 150}], ids=str)
def test_a_run_goes_on_at_any_step(limit):
    batches = EpochBatches(LENGTHS, **limit, seed=5)
    num_steps = 2 * batches.steps_per_epoch + 3
    run = rows_of(batches.from_step(0, num_steps))[:num_steps]
    epochs = [rows.tolist() for epoch in range(3) for rows in batches.of_epoch(epoch)]
    assert run == epochs[:num_steps]
    for step in (1, batches.steps_per_epoch, num_steps - 1):
        assert rows_of(batches.from_step(step, num_steps))[: num_steps - step] == run[step:]
    other = EpochBatches(LENGTHS, **limit, seed=6)
    assert run != rows_of(other.from_step(0, num_steps))[:num_steps]


@pytest.mark.parametrize("limit", [{"batch_size": 7}, {"token_budget": 150}], ids=str)
def test_without_shuffling_all_epochs_are_the_same(limit):
    batches = EpochBatches(LENGTHS, **limit, seed=5, shuffle=False)
    first, second = ([rows.tolist() for rows in batches.of_epoch(epoch)] for epoch in (0, 1))
    assert first == second and sorted(sum(first, [])) == list(range(200))
    if "batch_size" in limit:
        assert sum(first, []) == list(range(200))


def test_bad_limits():
    for limits in ({}, {"batch_size": 2, "token_budget": 9}):
        with pytest.raises(UserError, match="Exactly one of"):
            EpochBatches([3], **limits)
    with pytest.raises(ConfigError, match="`token_budget` must be at least 1"):
        EpochBatches([3], token_budget=0)


def test_batches_without_duplicates():
    random = np.random.default_rng(2)
    groups = np.stack([np.arange(200) // 2, random.integers(100, 160, 200)], axis=1)  # [n, 2]
    batches = EpochBatches(np.ones(200), batch_size=16, seed=3, groups=groups)
    for epoch in range(3):
        rows = batches.of_epoch(epoch)
        assert len(rows) == batches.steps_per_epoch
        for batch in rows:
            shared = np.concatenate([np.unique(groups[row]) for row in batch])
            assert 0 < len(batch) <= 16 and len(np.unique(shared)) == len(shared)
        found = np.concatenate(rows)
        assert len(np.unique(found)) == len(found) > 190
    different = np.arange(400).reshape(200, 2)
    same = EpochBatches(np.ones(200), batch_size=16, seed=3, groups=different).of_epoch(1)
    plain = EpochBatches(np.ones(200), batch_size=16, seed=3).of_epoch(1)
    assert [rows.tolist() for rows in same] == [rows.tolist() for rows in plain]
    repeated = EpochBatches(np.ones(20), batch_size=8, groups=np.zeros([20, 1], int)).of_epoch(0)
    assert [len(rows) for rows in repeated] == [1, 1, 1]
    with pytest.raises(UserError, match="no duplicates"):
        EpochBatches(np.ones(2), token_budget=8, groups=np.zeros([2, 1], int))
