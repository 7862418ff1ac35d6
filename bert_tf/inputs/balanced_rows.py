"""Deals the rows of a batch to replicas that compute packed tokens, so that all have equal work.

The result is a function of the lengths alone, in integers: every worker computes the same one
without communication.

Glossary: `B` rows of the batch, `n` bins (replicas, or parts of a replica's batch), `m` rows of a
bin.

Reference: Graham 1969, "Bounds on multiprocessing timing anomalies", for the first assignment.
Zeng et al. 2022, "Boosting distributed training performance of the unpadded BERT model"
(arXiv:2208.08124), exchanges the rows between workers during training for the same purpose.
"""

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function

# Distances from the mean, as shares of it. Bins nearer than the first are not worth another
# exchange. While a bin is farther than the second, other first assignments are tried.
TOLERANCE, ACCEPTED = 0.005, 0.05
# How many first assignments are tried. For batches of more rows the first one is good enough.
RESTARTS, FEW_ROWS = 16, 64
# Try exchanges between the 2 bins farthest from the mean and the 2 closest partners.
TRIED_BINS = 2


def deal_rows(lengths: np.ndarray, replicas: int, parts: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Deals rows to replicas: the same number of rows (to one row) and of tokens (if possible).

    Args:
        lengths: The number of tokens of each row, int `[B]`.
        replicas: The number of replicas, n.
        parts: The number of parts that a replica's batch is computed in, one after the other; they
            have equal numbers of tokens too.

    Returns:
        The order of the rows by replica, int64 `[B]`, and where each replica begins in it, int64
        `[n + 1]`. A replica has a row less than another where n does not divide B. With one
        replica, the order is that of the input.

    Example:
        >>> order, splits = deal_rows(np.array([9, 8, 2, 1]), replicas=2)
        >>> [order[start:end].tolist() for start, end in zip(splits, splits[1:])]
        [[0, 3], [1, 2]]
    """
    lengths = np.asarray(lengths, np.int64)
    splits = _splits(len(lengths), replicas)
    if replicas == 1:
        return np.arange(len(lengths)), splits
    order = balanced_order(lengths, np.diff(splits))
    if parts > 1:
        for start, end in zip(splits, splits[1:]):
            own = order[start:end]
            order[start:end] = own[balanced_order(lengths[own], np.diff(_splits(len(own), parts)))]
    return order, splits


def deal_in_graph(lengths: tf.Tensor, replicas: int, parts: int = 1) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns what `deal_rows` does, in a `tf.data` pipeline: int64 `[B]` and `[n + 1]`."""

    def deal(lengths):
        return deal_rows(lengths, replicas, parts)

    order, splits = numpy_function(deal, [lengths], [tf.int64, tf.int64], stateful=False)
    return tf.ensure_shape(order, [None]), tf.ensure_shape(splits, [replicas + 1])


class ReplicaShare:
    """The rows that the replicas of one worker compute, of batches that all replicas share.

    The rows are dealt so that all replicas have equal tokens. See `deal_rows`.

    Args:
        replicas: The number of replicas of all workers.
        first: The number of this worker's first replica.
        count: The number of this worker's replicas.
        parts: The number of parts that a replica's batch is computed in.
    """

    def __init__(self, replicas: int, first: int = 0, count: int = 1, parts: int = 1):
        self.replicas = replicas
        self.first = first
        self.count = count
        self.parts = parts

    def of(self, batches: tf.data.Dataset, lengths: np.ndarray) -> tf.data.Dataset:
        """Returns one batch for each of the worker's replicas in place of each batch.

        Args:
            batches: Rows int64 `[B]` and their epoch, as `TextEpochs.batches` returns them.
            lengths: The number of tokens of every row, int64 `[n]`.
        """

        def deal(rows, epoch):
            order, splits = deal_in_graph(tf.gather(lengths, rows), self.replicas, self.parts)
            rows = tf.gather(rows, order)

            def of_replica(replica):
                return rows[splits[replica] : splits[replica + 1]], epoch

            replicas = tf.data.Dataset.range(self.first, self.first + self.count)
            return replicas.map(of_replica)

        count = batches.cardinality()
        if count != tf.data.INFINITE_CARDINALITY:
            count *= self.count
        with tf.device("CPU:0"):
            lengths = tf.constant(lengths)
        dealt = batches.flat_map(deal)
        return dealt.apply(tf.data.experimental.assert_cardinality(count))


def balanced_order(lengths: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Returns rows in the order of bins with given numbers of rows and about equal tokens.

    Args:
        lengths: The number of tokens of each row, int64 `[B]`.
        sizes: The number of rows of each bin, int64 `[n]`; they differ by one at most.

    Returns:
        The numbers of the rows, int64 `[B]`: first those of bin 0, ascending, and so on.
    """
    accepted = max(ACCEPTED * lengths.sum(), _least_distance(lengths, sizes))
    random = np.random.default_rng(0)
    bins = best = _longest_first(lengths, sizes)
    nearest = np.inf
    for _ in range(1 + (RESTARTS if len(lengths) <= FEW_ROWS else 0)):
        distance = _exchange(lengths, bins, len(sizes))
        if distance < nearest:
            best, nearest = bins, distance
        if nearest <= accepted:
            break
        bins = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return np.argsort(best, kind="stable")


def _splits(count, bins):
    return np.arange(bins + 1) * count // bins


def _least_distance(lengths, sizes):
    """Returns a lower bound of the largest distance of a bin's tokens from the mean, times n.

    Some bin has `j + 1` or more of the `j n + 1` longest rows, and so it is for the shortest rows.
    """
    count, total = len(sizes), lengths.sum()
    bounds = [0]
    for sign, size in ((1, sizes.min()), (-1, sizes.max())):
        rows = np.sort(-sign * lengths)  # the longest first, or the shortest
        ends = np.append(0, np.cumsum(rows))
        for together in range(min(size, -(-len(rows) // count))):
            last = together * count + 1
            others = len(rows) - (size - together - 1)
            if last <= others:
                tokens = ends[last] - ends[last - together - 1] + ends[-1] - ends[others]
                bounds.append(-tokens * count - sign * total)
    return max(bounds)


def _longest_first(lengths, sizes):
    """Returns the bin of each row: the longest row goes first, to the emptiest bin with room."""
    bins = np.empty(len(lengths), np.int64)
    tokens, room = [0] * len(sizes), sizes.tolist()
    for row in np.argsort(-lengths, kind="stable").tolist():
        target = min((bin for bin in range(len(room)) if room[bin]), key=tokens.__getitem__)
        bins[row] = target
        tokens[target] += int(lengths[row])
        room[target] -= 1
    return bins


def _exchange(lengths, bins, count):
    """Exchanges rows between bins, in place, while that brings their tokens nearer together.

    Returns the largest distance of a bin's tokens from the mean, times the number of bins.
    """
    total = lengths.sum()
    totals = np.zeros(count, np.int64)
    np.add.at(totals, bins, lengths)
    while True:
        distances = np.abs(totals * count - total)
        for worst in np.argsort(-distances, kind="stable")[:TRIED_BINS]:
            if distances[worst] <= TOLERANCE * total:
                return distances.max()
            found = _best_exchange(lengths, bins, totals, worst)
            if found is not None:
                break
        else:
            return distances.max()
        mine, theirs = found
        other = bins[theirs[0]]
        moved = lengths[mine].sum() - lengths[theirs].sum()
        totals[worst] -= moved
        totals[other] += moved
        bins[mine], bins[theirs] = other, worst


def _best_exchange(lengths, bins, totals, worst):
    """Returns rows of the bin `worst` and as many of another bin to exchange, or None.

    The best exchange makes the sum of the squares of the bins' tokens smallest. Pairs of rows are
    tried where no single rows are found.
    """
    others = np.argsort(-np.abs(totals - totals[worst]), kind="stable")[:TRIED_BINS]
    for rows_of in (_single_rows, _pairs_of_rows):
        best, found = 0, None
        own_rows, own = rows_of(np.flatnonzero(bins == worst), lengths)
        for other in others[others != worst]:
            their_rows, their = rows_of(np.flatnonzero(bins == other), lengths)
            if not len(own) or not len(their):
                continue
            gap = totals[worst] - totals[other]
            # The tokens that leave `worst`, x - y, are best at gap / 2.
            wanted = np.searchsorted(their, own - gap // 2)
            for places in (wanted - 1, wanted):
                places = np.clip(places, 0, len(their) - 1)
                moved = own - their[places]
                changes = moved * (moved - gap)  # of half of the sum of the squares
                place = int(changes.argmin())
                if changes[place] < best:
                    best, found = changes[place], (own_rows[place], their_rows[places[place]])
        if found is not None:
            return found
    return None


def _single_rows(rows, lengths):
    """Returns the rows `[m, 1]` and their tokens `[m]`, ascending."""
    order = np.argsort(lengths[rows], kind="stable")
    return rows[order, np.newaxis], lengths[rows[order]]


def _pairs_of_rows(rows, lengths):
    """Returns all pairs of the rows `[m (m - 1) / 2, 2]` and their tokens, ascending."""
    first, second = np.triu_indices(len(rows), 1)
    pairs = np.stack([rows[first], rows[second]], axis=1)
    sums = lengths[pairs].sum(axis=1)
    order = np.argsort(sums, kind="stable")
    return pairs[order], sums[order]
