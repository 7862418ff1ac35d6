"""Which rows each batch has: in another order in every epoch, or sorted for prediction.

The order of an epoch depends on (seed, epoch) only. The number of tokens of a batch determines the
cost of a step without padding.

Glossary: `n` rows (or sequences, examples), `K` parts of a row, `M` batches, `B` rows of a batch.
"""

import itertools
import logging
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import UserError, check_limits, require, user_error
from bert_tf.inputs.token_rows import TokenRows

# Tokens of a batch, padding counted: enough for fast matmuls, with less than 200 MB of activations.
TOKEN_BUDGET = 4096
DEFAULT_BATCH_SIZE = 32  # Keras's own
# The shares of the rows that an epoch lacks because of duplicates, from which on it is logged and
# is a warning.
LEFT_OUT_LOGGED, LEFT_OUT_WARNED = 0.01, 0.1

_logger = logging.getLogger("bert_tf")


class TokenBatches(NamedTuple):
    """Sequences in batches. Results in their order, indexed by `inverse`, are in the input's."""

    order: np.ndarray  # the indices of the sequences in the order of the batches, int64 [n]
    splits: np.ndarray  # where each batch starts in `order`, int64 [M+1]
    inverse: np.ndarray  # the place of each sequence in `order`, int64 [n]


def token_batches(
    lengths: np.ndarray,
    token_budget: int,
    max_rows: int | None = None,
    sort: bool = True,
    padded: bool = False,
) -> TokenBatches:
    """Divides sequences into batches of at most `token_budget` tokens (or one longer sequence).

    Args:
        lengths: The number of tokens of each sequence, int `[n]`; or `[n, K]` for examples of K
            parts that are padded separately, such as a source and a target.
        token_budget: The maximum number of tokens of a batch.
        max_rows: The maximum number of sequences of a batch, or None.
        sort: Whether to batch sequences of similar length, the longest first, or in their order.
        padded: Whether to count padding: the number of rows times the longest length, of each part.

    Returns:
        The `TokenBatches`.

    Raises:
        ConfigError: If a limit is below 1.

    Example:
        >>> batches = token_batches(np.array([3, 9, 4, 2]), token_budget=10)
        >>> [batches.order[a:b].tolist() for a, b in zip(batches.splits, batches.splits[1:])]
        [[1], [2, 0, 3]]
    """
    check_limits(token_budget=token_budget, max_rows=max_rows)
    lengths = np.asarray(lengths, np.int64)
    count = len(lengths)
    parts = lengths[:, np.newaxis] if lengths.ndim == 1 else lengths  # [E, K]
    order = by_length(lengths) if sort else np.arange(count)
    splits = [0]
    rows = tokens = 0
    longest = [0] * parts.shape[1]
    for place, example in enumerate(parts[order].tolist()):
        longest = list(map(max, longest, example))
        cost = sum(longest) * (rows + 1) if padded else tokens + sum(example)
        if rows and (cost > token_budget or rows == max_rows):
            splits.append(place)
            rows, tokens, longest = 0, 0, example
        rows += 1
        tokens += sum(example)
    splits = np.array(splits + [count] if count else splits, np.int64)
    return TokenBatches(order, splits, np.argsort(order))


def even_batches(lengths: np.ndarray, token_budget: int) -> list[np.ndarray]:
    """Divides sequences into few batches of at most `token_budget` tokens, equal in size.

    Batches have the same number of sequences, to one, and about the same number of tokens. So XLA
    compiles at most two programs, and there is almost no padding.

    Args:
        lengths: The number of tokens of each sequence, int `[n]`, the longest first.
        token_budget: The maximum number of tokens of a batch.

    Returns:
        The indices of the sequences of each batch, int64 `[B]`.

    Raises:
        UserError: If a sequence has more tokens than `token_budget`.

    Example:
        >>> even_batches(np.array([9, 4, 3, 2, 1]), token_budget=11)
        [array([0, 3]), array([1, 2, 4])]
    """
    lengths = np.asarray(lengths, np.int64)
    count, longest = len(lengths), lengths.max(initial=1)
    rule = f"must be at least {longest} with `jit_compile=True`, the tokens of the longest example"
    require(token_budget >= longest, rule, UserError, token_budget=token_budget)
    number = max(1, -(-lengths.sum() // token_budget))
    while True:
        tokens, batches = np.zeros(number, np.int64), np.zeros(count, np.int64)
        for start in range(0, count, number):  # the longest goes where the fewest tokens are
            fewest = np.argsort(tokens, kind="stable")[: count - start]
            batches[start : start + number] = fewest
            tokens[fewest] += lengths[start : start + number]
        if tokens.max() <= token_budget:
            splits = np.cumsum(np.bincount(batches, minlength=number))[:-1]
            return np.split(np.argsort(batches, kind="stable"), splits)
        number += 1 + number // 256


def by_length(lengths: np.ndarray) -> np.ndarray:
    """Returns the order of sequences by length, the longest first, int64 `[n]`.

    Sequences with the same lengths stay in their order.

    Args:
        lengths: See `token_batches`: by their sum, and by each part among those of the same sum.
    """
    lengths = np.asarray(lengths, np.int64)
    parts = lengths[np.newaxis] if lengths.ndim == 1 else np.vstack([lengths.T, lengths.sum(1)])
    return np.lexsort(-parts)  # stable; by its last key first


def sorted_batches(
    rows: TokenRows,
    token_budget: int | None = None,
    batch_size: int | None = None,
    length: int | None = None,
) -> list[np.ndarray]:
    """Returns the numbers of the rows of each batch, int64 `[B]`, the longest rows first.

    Args:
        rows: The rows.
        token_budget: The maximum of `B * T`, padding counted; a longer row is a batch of its own.
            None for `TOKEN_BUDGET`, or for no maximum where there is a `batch_size`.
        batch_size: The maximum number of rows of a batch.
        length: T, for XLA: then all batches but the last have the same number of rows. None for the
            longest row of the batch.

    Example:
        >>> preprocessor = bert_tf.BertTextClassifier.from_pretrained("reviews/").preprocessor
        >>> rows = preprocessor.encode(preprocessor.read(["no", "a good film"]))
        >>> sorted_batches(rows)
        [array([1, 0])]
    """
    lengths = rows.lengths()
    if length is not None:
        lengths = np.full(len(lengths), length)
    if token_budget is None:
        token_budget = TOKEN_BUDGET
        if batch_size is not None:
            token_budget = batch_size * max(1, lengths.max(initial=0))
    order, splits, _ = token_batches(lengths, token_budget, batch_size, padded=True)
    return [order[start:end] for start, end in itertools.pairwise(splits)]


class EpochBatches:
    """Which rows each batch of each epoch has: every row once in every epoch.

    With a token budget, a batch has rows of similar length, or of all lengths if it is `even`.
    Which rows of the same length are together and the order of the batches differ between epochs;
    the lengths in the batches do not, so all epochs have the same number of steps.

    Args:
        lengths: The number of tokens of each row, int `[n]`; or `[n, K]` as in `token_batches`.
        batch_size: The number of rows of a batch.
        token_budget: In place of `batch_size`, the maximum number of tokens of a batch; a longer
            row is a batch of its own.
        padded: Whether `token_budget` counts padding: the number of rows times the longest length.
        even: Whether batches are those of `even_batches`, for XLA, and not of similar lengths.
        seed: The seed of the orders.
        shuffle: Whether epochs have different orders. If not, all have that of epoch 0, and with
            `batch_size` the rows stay in their order.
        groups: With `batch_size`: int `[n, K]`, numbers that two rows of a batch must not share,
            such as those of their texts. Later batches have the rows that wait for that, and an
            epoch lacks those for which no batch is left.
        labels: With `batch_size`: int `[n]`, the labels of the rows, for `rows_per_label`.
        rows_per_label: With `labels`: how often a label is at least in a batch that has it. A batch
            has several labels and at most `batch_size` rows. An epoch lacks what is left over of
            a label, and the rows of one that has more batches than all others.

    Attributes:
        steps_per_epoch: The number of batches of an epoch, M.
        most_tokens: The largest number of tokens of an `even` batch, rounded up to a multiple of 8.
        may_lack_rows: Whether an epoch may lack rows, because of `groups` or `rows_per_label`.

    Raises:
        ConfigError: If `batch_size` or `token_budget` is below 1.
        UserError: If not exactly one of them is given, `groups` or `rows_per_label` with a
            `token_budget`, the labels or `batch_size` do not suffice for `rows_per_label`, or an
            `even` batch has no room for the longest row.

    Example:
        >>> batches = EpochBatches([3, 9, 4, 2], token_budget=10)
        >>> batches.steps_per_epoch
        2
        >>> sorted(rows.tolist() for rows in batches.of_epoch(0))
        [[1], [2, 0, 3]]
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int | None = None,
        token_budget: int | None = None,
        padded: bool = False,
        even: bool = False,
        seed: int = 0,
        shuffle: bool = True,
        groups: np.ndarray | None = None,
        labels: np.ndarray | None = None,
        rows_per_label: int | None = None,
    ):
        if (batch_size is None) == (token_budget is None):
            received = f"batch_size={batch_size}, token_budget={token_budget}"
            raise user_error("Exactly one of `batch_size` and `token_budget`", "be given", received)
        rule = "must be None for batches that have no duplicates or several rows per label"
        is_free = groups is None and rows_per_label is None
        require(is_free or token_budget is None, rule, UserError, token_budget=token_budget)
        check_limits(batch_size=batch_size, token_budget=token_budget)
        lengths = np.asarray(lengths, np.int64)
        # If padding does not count, a row counts by the sum of its parts.
        self.lengths = lengths if padded or lengths.ndim == 1 else lengths.sum(axis=1)
        self.batch_size = batch_size
        self.token_budget = token_budget
        self.padded = padded
        self.even = even
        self.seed = seed
        self.shuffle = shuffle
        self.groups = groups
        self.labels = labels
        self.rows_per_label = rows_per_label
        self.may_lack_rows = not is_free
        self._last_epoch = None, []
        if rows_per_label is not None:
            self._require_labels()
            self.steps_per_epoch = len(self.of_epoch(0))  # the same in all epochs
            return
        if token_budget is None:
            count = len(self.lengths)
            self._splits = np.append(np.arange(0, count, batch_size), count)
            self._places = np.split(np.arange(count), self._splits[1:-1])
        # The lengths of sorted rows, and so the places, are the same in every epoch.
        elif even:
            longest_first = np.sort(self.lengths)[::-1]
            self._places = even_batches(longest_first, token_budget)
            most = max(int(longest_first[places].sum()) for places in self._places)
            self.most_tokens = min(token_budget, -(-most // 8) * 8)
        else:
            splits = token_batches(self.lengths, token_budget, padded=padded).splits
            self._places = np.split(np.arange(splits[-1]), splits[1:-1])
        self.steps_per_epoch = len(self._places)

    def _require_labels(self):
        per_label, batch_size = self.rows_per_label, self.batch_size
        rule = f"must be at least {2 * per_label}, the rows of two labels"
        require(batch_size >= 2 * per_label, rule, UserError, batch_size=batch_size)
        sizes = np.unique(self.labels, return_counts=True)[1]
        if np.sum(sizes >= per_label) < 2:
            expected = f"have at least two labels with {per_label} examples or more"
            received = f"labels with {np.sort(sizes)[::-1][:5].tolist()} examples"
            raise user_error("`y`", expected, received)

    def of_epoch(self, epoch: int) -> list[np.ndarray]:
        """Returns the rows of each batch, int64 `[B]`."""
        random = np.random.default_rng([self.seed, epoch if self.shuffle else 0])
        order = np.arange(len(self.lengths))
        if self.shuffle or self.token_budget is not None:
            order = random.permutation(len(self.lengths))
        if self.token_budget is not None:
            order = order[by_length(self.lengths[order])]
        if self.rows_per_label is not None:
            return _by_label(order, self.labels, self.rows_per_label, self.batch_size, random)
        if self.groups is not None:
            return _without_duplicates(order, self.groups, np.diff(self._splits))
        batches = [order[places] for places in self._places]
        if self.token_budget is not None:
            random.shuffle(batches)
        return batches

    def report_left_out(self, epoch: int) -> None:
        """Logs how many rows an epoch lacks because of `groups` or `rows_per_label`.

        Raises:
            UserError: If half of the batches of pairs shrink to one row, whose texts are compared
                with no others.
        """
        sizes = [len(rows) for rows in self.of_epoch(epoch)]
        if self.groups is None:
            reason = "`texts_per_label`: no batch is left that has another label"
        else:
            reason = "`no_duplicates`: every batch has their texts"
            self._refuse_single_rows(sizes)
        count = len(self.lengths)
        left_out = count - sum(sizes)
        if left_out >= LEFT_OUT_LOGGED * count:
            _logger.log(
                logging.WARNING if left_out >= LEFT_OUT_WARNED * count else logging.INFO,
                "%.1f %% of the examples (%d of %d) are left out of an epoch by %s. "
                "Batches have %d to %d rows.",
                *(100.0 * left_out / count, left_out, count, reason, min(sizes), max(sizes)),
            )

    def _refuse_single_rows(self, sizes):
        shrunk = sum(size < 2 <= full for size, full in zip(sizes, np.diff(self._splits)))
        if self.groups.shape[1] < 3 and shrunk and shrunk >= len(sizes) / 2:
            raise UserError(
                "`no_duplicates` must leave batches of at least two rows, or their loss is 0. "
                f"Received: {shrunk} of {len(sizes)} batches with one row, because most examples "
                "share a text. Add examples with other texts, or pass `no_duplicates=False`."
            )

    def at_step(self, step: int) -> tuple[np.ndarray, np.int64]:
        """Returns the rows of the batch after `step` steps, int64 `[B]`, and their epoch."""
        epoch, place = divmod(int(step), self.steps_per_epoch)
        last, batches = self._last_epoch
        if epoch != last:
            batches = self.of_epoch(epoch)
            self._last_epoch = epoch, batches
        return batches[place], np.int64(epoch)

    def from_step(self, step: int, num_steps: int) -> tf.data.Dataset:
        """Returns a dataset of the batches after `step` steps of a run of `num_steps`.

        Args:
            step: The number of steps that are done.
            num_steps: The number of steps of the whole run, of any number of epochs.

        Returns:
            Rows int64 `[B]`, each batch with its epoch, int64; the last epoch is whole.
        """
        num_epochs = -(-num_steps // self.steps_per_epoch)
        steps = tf.data.Dataset.range(step, num_epochs * self.steps_per_epoch)
        return _batches_of(steps, self.at_step)


def _without_duplicates(order, groups, sizes) -> list[np.ndarray]:
    """Returns batches of at most `sizes` rows, of which no two share a group."""
    batches, waiting = [], [(row, set(groups[row].tolist())) for row in order.tolist()]
    for size in sizes:
        rows, used, skipped = [], set(), []
        for place, (row, own) in enumerate(waiting):
            if len(rows) == size:
                skipped += waiting[place:]
                break
            if used.isdisjoint(own):
                rows.append(row)
                used |= own
            else:
                skipped.append((row, own))
        batches.append(np.array(rows, np.int64))
        waiting = skipped
    return batches


def _by_label(order, labels, per_label, batch_size, random) -> list[np.ndarray]:
    """Returns batches of several labels, each of which a batch has `per_label` times or more.

    The labels take turns with `per_label` rows each, as in sentence-transformers'
    `GroupByLabelBatchSampler`, which has pairs.
    """
    order = order[np.argsort(labels[order], kind="stable")]
    starts = np.unique(labels[order], return_index=True)[1]
    blocks = [
        rows[: len(rows) // per_label * per_label].reshape(-1, per_label)
        for rows in np.split(order, starts[1:])
    ]
    turns, last = [], None
    for turn in itertools.count():
        left = random.permutation([label for label, rows in enumerate(blocks) if len(rows) > turn])
        if len(left) < 2:
            break
        if left[0] == last:  # else a batch of two turns would have one label
            left[:2] = left[1::-1]
        turns += [blocks[label][turn] for label in left]
        last = left[-1]
    size = batch_size // per_label
    batches = [turns[start : start + size] for start in range(0, len(turns), size)]
    return [np.concatenate(rows) for rows in batches if len(rows) > 1]


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

    def batches(self, batches: EpochBatches) -> tf.data.Dataset:
        """Returns a dataset of the rows of each batch, int64 `[B]`, and their epoch, int64."""
        count = batches.steps_per_epoch
        if self.goes_on:
            return _batches_of(tf.data.Dataset.counter(self.epoch * count), batches.at_step)

        def of_epoch(step):
            return batches.at_step(self.epoch * count + step)

        return _batches_of(tf.data.Dataset.range(count), of_epoch)


def _batches_of(steps: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Returns what a Python function returns for each step: rows and their epoch."""

    @tf.autograph.experimental.do_not_convert
    def call(step):
        rows, epoch = numpy_function(function, [step], [tf.int64, tf.int64])
        return tf.ensure_shape(rows, [None]), tf.ensure_shape(epoch, [])

    return steps.map(call)
