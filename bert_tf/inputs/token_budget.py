"""Batches of the examples of a dataset with a maximum number of tokens."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import ConfigError, check_limits, user_error
from bert_tf.inputs.batches import token_batches


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
    """Batches the examples of a dataset with a maximum number of tokens per batch.

    Within a window, examples of similar length are batched, and the batches are shuffled.

    Args:
        dataset: Single examples without padding: scalars and vectors in any nest of dictionaries
            and tuples.
        token_budget: The maximum number of tokens of a batch.
        length: A function from the components of an example to its number of tokens. None for the
            size of `token_ids` in the dictionary that is or begins the example.
        max_rows: The maximum number of examples of a batch, or None.
        window: The number of examples of a window.
        sort, padded: See `token_batches`. `sort=False` keeps the order of the batches too.
        ragged: Whether vectors become RaggedTensors. False pads them to the longest.
        padding_values: Padding values by the name of a component. The default is 0, False or "".
        seed: The seed of the shuffle.

    Returns:
        A dataset of batches.

    Raises:
        ConfigError: If a limit is below 1, or `length` is None and there are no `token_ids`.

    Example:
        >>> dataset = tf.data.Dataset.from_generator(
        ...     lambda: ({"token_ids": [7] * size} for size in (2, 3, 9)),
        ...     output_signature={"token_ids": tf.TensorSpec([None], tf.int32)},
        ... )
        >>> [tuple(batch["token_ids"].shape) for batch in batch_by_tokens(dataset, 10)]
        [(1, 9), (2, 3)]
    """
    check_limits(token_budget=token_budget, max_rows=max_rows, window=window)
    padding_values = padding_values or {}
    spec = dataset.element_spec
    features = spec[0] if isinstance(spec, tuple) else spec
    if length is None and not (isinstance(features, dict) and "token_ids" in features):
        expected = "have examples that are or begin with a dictionary with token_ids"
        received = f"dataset.element_spec={spec}. Pass `length`, a function of an example."
        raise user_error("`dataset`", expected, received, ConfigError)

    def cut(lengths, number):
        order, splits, _ = token_batches(lengths, token_budget, max_rows, sort, padded)
        batches = np.split(order, splits[1:-1])
        if sort:
            np.random.default_rng([seed & (2**64 - 1), int(number)]).shuffle(batches)
        splits = np.cumsum([0] + [len(batch) for batch in batches])
        return np.concatenate(batches), splits.astype(np.int64)

    def batches_of(number, lengths, examples):
        order, splits = numpy_function(cut, [lengths, number], [tf.int64, tf.int64])
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
        size = length(*example) if length else tf.size(example[0]["token_ids"])
        return tf.cast(size, tf.int64), example if len(example) > 1 else example[0]

    windows = dataset.map(with_length).ragged_batch(window).enumerate()
    return windows.flat_map(lambda number, rest: batches_of(number, *rest))


def _map_named(function: Callable[[str, Any], Any], nest: Any, name: str = "") -> Any:
    """Maps the leaves of a nest, each with the dictionary key that it is under."""
    if isinstance(nest, dict):
        return {key: _map_named(function, value, key) for key, value in nest.items()}
    if isinstance(nest, tuple):
        return tuple(_map_named(function, value, name) for value in nest)
    return function(name, nest)
