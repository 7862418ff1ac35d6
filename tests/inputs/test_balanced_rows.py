"""Rows are dealt so that bins have equal tokens, wherever that is possible at all."""

import functools
import itertools

import numpy as np
import pytest

from bert_tf.inputs.balanced_rows import deal_in_graph, deal_rows

DRAWS = {
    "uniform": lambda random, count: random.integers(3, 129, count),
    "lognormal": lambda random, count: np.clip(random.lognormal(3.3, 0.6, count), 3, 512),
    "heavy": lambda random, count: np.clip(10 * random.pareto(1.2, count) + 3, 3, 512),
    "two sizes": lambda random, count: np.where(random.random(count) < 0.3, 120, 20),
}


def drawn(name, random, count):
    return DRAWS[name](random, count).astype(np.int64)


def distance(lengths, order, splits):
    """The largest distance of a bin's tokens from the mean, as a share of the mean."""
    tokens = [lengths[order[start:end]].sum() for start, end in itertools.pairwise(splits)]
    return np.abs(np.array(tokens) / np.mean(tokens) - 1).max()


def least_distance(lengths, bins):
    """The same for the best of all ways to deal the rows in equal numbers."""
    size, mean = len(lengths) // bins, lengths.sum() / bins

    @functools.cache
    def best(rows):
        if not rows:
            return 0.0
        found = np.inf
        for others in itertools.combinations(rows[1:], size - 1):
            here = abs(lengths[[rows[0], *others]].sum() / mean - 1)
            if here < found:
                left = tuple(row for row in rows[1:] if row not in others)
                found = min(found, max(here, best(left)))
        return found

    return best(tuple(range(len(lengths))))


@pytest.mark.parametrize("bins, size", [(2, 4), (2, 5), (3, 2), (3, 3), (4, 2)])
def test_within_5_percent_wherever_any_way_is(bins, size, is_full):
    random = np.random.default_rng(bins * 10 + size)
    possible = 0
    for name in DRAWS:
        for _ in range(60 if is_full else 6):
            lengths = drawn(name, random, bins * size)
            if least_distance(lengths, bins) <= 0.05:
                possible += 1
                assert distance(lengths, *deal_rows(lengths, bins)) <= 0.05, lengths
    assert possible


@pytest.mark.parametrize("replicas, size", [(2, 16), (4, 16), (8, 16), (8, 32)])
def test_many_rows_are_within_5_percent(replicas, size):
    random = np.random.default_rng(0)
    for name in ("uniform", "lognormal"):
        for _ in range(5):
            lengths = drawn(name, random, replicas * size)
            order, splits = deal_rows(lengths, replicas)
            assert distance(lengths, order, splits) <= 0.05
            assert sorted(order) == list(range(len(lengths)))


def test_one_long_row_cannot_be_dealt_better():
    lengths = np.array([512, *[10] * 15])
    order, splits = deal_rows(lengths, 4)
    assert [len(rows) for rows in np.split(order, splits[1:-1])] == [4, 4, 4, 4]
    longest = next(rows for rows in np.split(order, splits[1:-1]) if 0 in rows)
    assert lengths[longest].sum() == 512 + 3 * 10  # the least that is possible


def test_parts_of_a_replica_are_balanced_too():
    lengths = drawn("lognormal", np.random.default_rng(1), 96)
    whole, splits = deal_rows(lengths, 2)
    order, _ = deal_rows(lengths, 2, parts=3)
    for start, end in itertools.pairwise(splits):
        assert sorted(order[start:end]) == sorted(whole[start:end])
        own = lengths[order[start:end]]
        assert distance(own, np.arange(48), np.arange(4) * 16) <= 0.05


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_few_rows(count):
    """Numbers of rows differ by one at most, and replicas can be without any."""
    order, splits = deal_rows(np.full(count, 5), 3, parts=2)
    assert sorted(order) == list(range(count))
    assert np.ptp(np.diff(splits)) <= 1 and splits[-1] == count


def test_one_replica_keeps_the_order():
    order, splits = deal_rows(np.array([1, 9, 4]), 1, parts=2)
    assert order.tolist() == [0, 1, 2] and splits.tolist() == [0, 3]


def test_the_graph_deals_the_same_rows():
    lengths = drawn("lognormal", np.random.default_rng(2), 24)
    for ours, expected in zip(deal_in_graph(lengths, 4, 2), deal_rows(lengths, 4, 2)):
        np.testing.assert_array_equal(ours, expected)
