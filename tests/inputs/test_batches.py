"""Every epoch has every row once, in another order that the seed determines; replicas share it."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError, UserError
from bert_tf.inputs.balanced_rows import ReplicaShare
from bert_tf.inputs.batches import EpochBatches, TextEpochs, even_batches
from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_rows import RaggedRows, batches_of_numbers

LENGTHS = np.random.default_rng(0).integers(3, 40, 200)
PARTS = np.random.default_rng(1).integers(3, 40, [200, 2])
LIMITS = [{"batch_size": 64}, {"token_budget": 1200}]


def cost(rows, lengths, padded):
    parts = lengths[rows].reshape(len(rows), -1)  # [B] or [B, K] -> [B, K]
    return parts.max(axis=0).sum() * len(rows) if padded else parts.sum()


def rows_of(dataset):
    return [rows.tolist() for rows, _ in dataset.as_numpy_iterator()]


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


@pytest.mark.parametrize("count", [1, 2, 997, 1000])
@pytest.mark.parametrize("budget", [40, 1024, 10**6])
def test_even_batches_have_the_same_size(count, budget):
    lengths = np.random.default_rng(2).lognormal(2.5, 0.6, count).astype(int).clip(3, 40)
    batches = EpochBatches(lengths, token_budget=budget, even=True, seed=3)
    first, second = batches.of_epoch(0), batches.of_epoch(1)
    assert sorted(np.concatenate(first)) == sorted(np.concatenate(second)) == list(range(count))
    assert len(first) == len(second) == batches.steps_per_epoch
    tokens = [lengths[rows].sum() for rows in (*first, *second)]
    assert max(tokens) <= batches.most_tokens <= budget
    assert np.ptp([len(rows) for rows in first]) <= 1
    if budget == 1024 and count > 2:  # the share of the padding
        assert np.mean(tokens) / batches.most_tokens > 0.985
        assert any({*rows} != {*others} for rows, others in zip(first, second))


def test_even_batches_have_room_for_a_long_row():
    lengths = np.array([100] + [10] * 50)
    batches = even_batches(lengths, 100)
    assert max(lengths[rows].sum() for rows in batches) == 100
    assert [len(rows) for rows in batches] == [1, *[2] * 25]  # the long one has no room for another
    with pytest.raises(UserError, match="`token_budget` must be at least 100 with `jit_compile="):
        even_batches(lengths, 99)


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


PEERS_STEPS = {
    # How many rows each label has, the batch size, and `len(GroupByLabelBatchSampler(...))` and the
    # rows of its batches in sentence-transformers 6.2.0:
    # dataset = datasets.Dataset.from_dict({"label": np.repeat(range(len(counts)), counts)})
    # sampler = GroupByLabelBatchSampler(dataset, size, False, ["label"], torch.Generator(), 3)
    "all": ((4, 4, 4, 4), 8, 2, 16),
    "one more often than all": ((40, 6, 5, 1), 6, 3, 16),
    "a batch of one label is left": ((3, 2, 2), 4, 1, 4),
    "a last batch of two labels": ((9, 8, 4, 2, 1), 8, 3, 22),
}


@pytest.mark.parametrize("case", PEERS_STEPS)
@pytest.mark.parametrize("per_label", [2, 3])
def test_batches_by_label(case, per_label):
    counts, batch_size, steps, rows_of_epoch = PEERS_STEPS[case]
    counts = np.array(counts) * per_label // 2
    labels = np.random.default_rng(3).permutation(
        np.repeat([7, -2, 5, 0, 9][: len(counts)], counts)
    )
    limit = {"batch_size": batch_size * per_label // 2, "rows_per_label": per_label, "seed": 4}
    batches = EpochBatches(np.ones(len(labels)), labels=labels, **limit)
    if per_label == 2:
        assert batches.steps_per_epoch == steps
    seen = []
    for epoch in range(20):
        rows = batches.of_epoch(epoch)
        assert len(rows) == batches.steps_per_epoch
        for batch in rows:
            times = np.unique(labels[batch], return_counts=True)[1]
            assert times.min() >= per_label and len(times) > 1 and len(batch) <= batches.batch_size
        seen.append(np.concatenate(rows).tolist())
        assert len(set(seen[-1])) == len(seen[-1])
        assert per_label != 2 or len(seen[-1]) == rows_of_epoch
    assert seen[0] != seen[1]
    again = EpochBatches(np.ones(len(labels)), labels=labels, **limit)
    assert np.concatenate(again.of_epoch(1)).tolist() == seen[1]
    if len(seen[0]) < len(labels) // 2 * 2:
        assert len(set(sum(seen, []))) > len(seen[0])  # other rows are left out in other epochs


def test_batches_by_label_that_cannot_be_made():
    labels = {"labels": np.array([0, 0, 0, 1]), "rows_per_label": 2}
    with pytest.raises(UserError, match=r"two labels with 2 examples .* \[3, 1\] examples"):
        EpochBatches(np.ones(4), batch_size=4, **labels)
    with pytest.raises(UserError, match="`batch_size` must be at least 4"):
        EpochBatches(np.ones(4), batch_size=3, **labels)
    with pytest.raises(UserError, match="`token_budget` must be None .* several rows per label"):
        EpochBatches(np.ones(4), token_budget=8, **labels)


def read(limit, epochs, replicas=1, first=0, count=1):
    """The rows of each replica's batches, one list per step."""
    batches = EpochBatches(LENGTHS, **limit, seed=epochs.seed)
    dataset = epochs.batches(batches)
    if replicas > 1:
        dataset = ReplicaShare(replicas, first, count).of(dataset, LENGTHS)
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
    dataset = epochs.batches(batches)
    assert dataset.cardinality() == tf.data.INFINITE_CARDINALITY
    found = [(rows.tolist(), epoch) for rows, epoch in dataset.take(8).as_numpy_iterator()]
    expected = [(rows.tolist(), e) for e in (1, 2) for rows in batches.of_epoch(e)]
    assert found == expected[:8]


def test_labels_of_tokens_have_their_shape_also_without_rows():
    ids = tf.ragged.constant([[2, 5, 3], [2, 3]], tf.int32, row_splits_dtype=tf.int64)
    rows, labels = RaggedRows(ids, ids * 0, pad_token_id=0), ids * 7
    numbers = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[0, 1], [1], []], tf.int64))
    for length, widths in ((None, [3, 2, 2]), (4, [4, 4, 4])):
        batches = list(batches_of_numbers(rows, (labels,), numbers, length))
        assert [values.shape[1] for _, values in batches] == widths
        for features, values in batches:
            assert values.shape == features["token_ids"].shape
    assert batches[0][1].numpy().tolist() == [[14, 35, 21, IGNORED], [14, 21, IGNORED, IGNORED]]
