"""Batches by tokens, not by rows: what a step costs on the padding-free path.

Glossary: `N` sequences, `M` batches.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import ConfigError


class TokenBatches(NamedTuple):
    """Sequences in batches.

    Attributes:
        order: int64 `[N]`, the sequences in the order of the batches.
        splits: int64 `[M + 1]`, where each batch starts in `order`.
        inverse: int64 `[N]`, the place of each sequence in `order`: results that come in the order
            of the batches, indexed by it, are in the order of the input again.
    """

    order: np.ndarray
    splits: np.ndarray
    inverse: np.ndarray


def token_batches(
    lengths: np.ndarray,
    token_budget: int,
    max_rows: int | None = None,
    sort: bool = True,
    padded: bool = False,
) -> TokenBatches:
    """Cuts sequences into batches of at most `token_budget` tokens.

    A sequence that is longer than the budget is a batch of its own.

    Args:
        lengths: int `[N]`, the tokens of each sequence.
        token_budget: the most tokens of a batch.
        max_rows: the most sequences of a batch; None for any.
        sort: whether sequences of like length come together, the longest first, so that memory
            that suffices for the first batch suffices for all; otherwise the order stays.
        padded: whether padding counts: rows times the longest of the batch.

    Returns:
        The `TokenBatches`.

    Raises:
        ConfigError: a limit is below 1.

    Example:
        >>> batches = token_batches(np.array([3, 9, 4, 2]), token_budget=10)
        >>> [batches.order[a:b].tolist() for a, b in zip(batches.splits, batches.splits[1:])]
        [[1], [2, 0, 3]]
    """
    _check(token_budget, max_rows)
    lengths = np.asarray(lengths, np.int64)
    count = len(lengths)
    order = np.argsort(-lengths, kind="stable") if sort else np.arange(count)
    splits = [0]
    rows = tokens = longest = 0
    for place, length in enumerate(lengths[order].tolist()):
        longest = max(longest, length)
        cost = longest * (rows + 1) if padded else tokens + length
        if rows and (cost > token_budget or rows == max_rows):
            splits.append(place)
            rows, tokens, longest = 0, 0, length
        rows += 1
        tokens += length
    splits = np.array(splits + [count] if count else splits, np.int64)
    inverse = np.empty(count, np.int64)
    inverse[order] = np.arange(count)
    return TokenBatches(order, splits, inverse)


def batch_by_tokens(
    dataset: tf.data.Dataset,
    token_budget: int,
    length: Callable[..., tf.Tensor] | None = None,
    max_rows: int | None = None,
    window: int = 1024,
    sort: bool = True,
    padded: bool = False,
    ragged: bool = False,
    padding_values: dict[str, Any] | None = None,
    seed: int = 0,
) -> tf.data.Dataset:
    """Batches single examples under a token budget.

    The dataset is cut in windows; within one, examples of like length come together and the batches
    are shuffled, by `seed` and the window's number alone.

    Args:
        dataset: single examples, unpadded: scalars and vectors in any nest of dictionaries and
            tuples.
        token_budget: the most tokens of a batch.
        length: the number of tokens of an example, an int scalar, from its components; None for
            the size of `token_ids` of the dictionary that an example is or begins with.
        max_rows: the most examples of a batch; None for any.
        window: examples that are ordered together.
        sort: see `token_batches`; without it the order stays, of the batches too.
        padded: see `token_batches`.
        ragged: whether vectors become RaggedTensors; otherwise they are padded to the longest.
        padding_values: what to pad with, by the name of a component; else 0, False or "".
        seed: the seed.

    Returns:
        A dataset of batches.

    Raises:
        ConfigError: a limit is below 1.

    Example:
        >>> dataset = tf.data.Dataset.from_generator(
        ...     lambda: ({"token_ids": [7] * size} for size in (2, 3, 9)),
        ...     output_signature={"token_ids": tf.TensorSpec([None], tf.int32)},
        ... )
        >>> [tuple(batch["token_ids"].shape) for batch in batch_by_tokens(dataset, 10)]
        [(1, 9), (2, 3)]
    """
    _check(token_budget, max_rows)
    if window < 1:
        raise ConfigError(f"Expected window to be at least 1. Received: window={window}.")
    padding_values = padding_values or {}
    length = length or _length_of_token_ids(dataset)

    def cut(lengths, number):
        order, splits, _ = token_batches(lengths, token_budget, max_rows, sort, padded)
        batches = np.split(order, splits[1:-1])
        if sort:
            np.random.default_rng([seed & (2**64 - 1), int(number)]).shuffle(batches)
        splits = np.cumsum([0] + [len(batch) for batch in batches])
        return np.concatenate(batches), splits.astype(np.int64)

    def batches_of(number, lengths, examples):
        order, splits = tf.numpy_function(cut, [lengths, number], [tf.int64, tf.int64])
        order, splits = tf.ensure_shape(order, [None]), tf.ensure_shape(splits, [None])

        def batch(index):
            taken = order[splits[index] : splits[index + 1]]
            return _map_named(lambda name, values: dense(name, tf.gather(values, taken)), examples)

        return tf.data.Dataset.range(tf.size(splits, out_type=tf.int64) - 1).map(batch)

    def dense(name, values):
        if ragged or not isinstance(values, tf.RaggedTensor):
            return values
        return values.to_tensor(padding_values.get(name))

    def with_length(*example):
        return tf.cast(length(*example), tf.int64), example if len(example) > 1 else example[0]

    windows = dataset.map(with_length).ragged_batch(window).enumerate()
    return windows.flat_map(lambda number, rest: batches_of(number, *rest))


def _length_of_token_ids(dataset: tf.data.Dataset) -> Callable[..., tf.Tensor]:
    spec = dataset.element_spec
    features = spec[0] if isinstance(spec, tuple) else spec
    if not isinstance(features, dict) or "token_ids" not in features:
        raise ConfigError(
            "Expected examples that are or begin with a dictionary with token_ids. "
            f"Received: {spec}. Pass length, a function of an example."
        )
    return lambda *example: tf.size(example[0]["token_ids"])


def _map_named(function: Callable[[str, Any], Any], nest: Any, name: str = "") -> Any:
    """Maps the leaves of a nest, with the name of the dictionary key they are under."""
    if isinstance(nest, dict):
        return {key: _map_named(function, value, key) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_map_named(function, value, name) for value in nest)
    return function(name, nest)


def _check(token_budget: int, max_rows: int | None) -> None:
    if token_budget < 1:
        raise ConfigError(
            f"Expected token_budget to be at least 1. Received: token_budget={token_budget}."
        )
    if max_rows is not None and max_rows < 1:
        raise ConfigError(f"Expected max_rows to be at least 1. Received: max_rows={max_rows}.")
