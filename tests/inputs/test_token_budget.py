"""Batches under a token budget."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.errors import ConfigError
from bert_tf.inputs.batches import token_batches
from bert_tf.inputs.token_budget import batch_by_tokens


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("max_rows", [None, 3])
def test_batches_keep_the_budget_and_lose_nothing(sort, padded, max_rows):
    generator = np.random.default_rng(0)
    for count in (0, 1, 2, 50, 300):
        lengths = generator.integers(0, 60, count)
        order, splits, inverse = token_batches(lengths, 100, max_rows, sort, padded)
        assert sorted(order) == list(range(count))
        np.testing.assert_array_equal(order[inverse], np.arange(count))
        assert splits[0] == 0 and splits[-1] == count and (np.diff(splits) > 0).all()
        batches = [lengths[order[a:b]] for a, b in zip(splits, splits[1:])]
        costs = [b.max() * len(b) if padded else b.sum() for b in batches]
        assert all(cost <= 100 for cost in costs)
        assert max_rows is None or all(len(batch) <= max_rows for batch in batches)
        if sort:
            assert (np.diff(lengths[order]) <= 0).all()
        else:
            assert order.tolist() == list(range(count))
        # Greedy: the next sequence would not have fitted.
        for batch, following in zip(batches, batches[1:]):
            longer = np.append(batch, following[0])
            cost = longer.max() * len(longer) if padded else longer.sum()
            assert cost > 100 or len(batch) == max_rows


def test_a_long_sequence_is_a_batch_of_its_own():
    order, splits, _ = token_batches(np.array([3, 500, 4]), 100)
    assert order.tolist() == [1, 2, 0] and splits.tolist() == [0, 1, 3]


def test_results_come_back_in_the_order_of_the_input():
    lengths = np.array([5, 2, 9, 4, 4])
    order, splits, inverse = token_batches(lengths, 9)
    results = np.concatenate([lengths[order[a:b]] * 10 for a, b in zip(splits, splits[1:])])
    assert results[inverse].tolist() == [50, 20, 90, 40, 40]


def examples(count=50):
    lengths = np.random.default_rng(1).integers(1, 20, count)

    def generate():
        for index, length in enumerate(lengths):
            yield {"token_ids": np.full(length, index + 1), "mask": np.full(length, True)}, index

    return lengths, tf.data.Dataset.from_generator(
        generate,
        output_signature=(
            {"token_ids": tf.TensorSpec([None], tf.int32), "mask": tf.TensorSpec([None], tf.bool)},
            tf.TensorSpec([], tf.int64),
        ),
    )


@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("ragged", [True, False])
def test_dataset(sort, ragged):
    lengths, dataset = examples()
    batches = batch_by_tokens(
        dataset, 64, window=16, sort=sort, ragged=ragged, padding_values={"token_ids": -1}, seed=3
    )
    seen = []
    for features, index in batches:
        seen += index.numpy().tolist()
        sizes = lengths[index.numpy()]
        assert sizes.sum() <= 64
        ids = features["token_ids"]
        assert isinstance(ids, tf.RaggedTensor) == ragged
        if ragged:
            assert ids.to_list() == [[i + 1] * n for i, n in zip(index.numpy(), sizes)]
        else:
            assert ids.shape == (len(sizes), sizes.max())
            np.testing.assert_array_equal((ids.numpy() != -1).sum(1), sizes)
            np.testing.assert_array_equal(features["mask"].numpy(), ids.numpy() != -1)
    assert sorted(seen) == list(range(50))
    assert (seen == list(range(50))) == (not sort)
    again = [index for _, indices in batches for index in indices.numpy()]
    assert again == seen


def test_windows_are_shuffled_by_the_seed():
    _, dataset = examples()
    firsts = [
        [int(index[0]) for _, index in batch_by_tokens(dataset, 40, seed=seed)] for seed in (1, 2)
    ]
    assert sorted(firsts[0]) == sorted(firsts[1]) and firsts[0] != firsts[1]


def test_length_may_be_named():
    dataset = tf.data.Dataset.from_tensor_slices({"size": [3, 4, 5]})
    batches = batch_by_tokens(dataset, 8, length=lambda example: example["size"], sort=False)
    assert [batch["size"].numpy().tolist() for batch in batches] == [[3, 4], [5]]


def test_bad_options():
    _, dataset = examples()
    with pytest.raises(ConfigError, match="token_budget=0"):
        token_batches(np.array([1]), 0)
    with pytest.raises(ConfigError, match="max_rows=0"):
        batch_by_tokens(dataset, 5, max_rows=0)
    with pytest.raises(ConfigError, match="window=0"):
        batch_by_tokens(dataset, 5, window=0)
    with pytest.raises(ConfigError, match="token_ids"):
        batch_by_tokens(tf.data.Dataset.range(3), 5)


def test_parts_are_padded_separately():
    parts = np.array([[1, 9], [9, 1], [5, 5], [5, 5]])
    order, splits, _ = token_batches(parts, 30, padded=True)
    batches = [parts[order[a:b]] for a, b in zip(splits, splits[1:])]
    assert all(batch.max(axis=0).sum() * len(batch) <= 30 for batch in batches)
    assert len(token_batches(parts, 30).splits) == 3  # without padding 3 of 10 tokens fit
