"""Raw text that comes bit by bit: generators, iterables, `keras.utils.PyDataset`, `tf.data`."""

import itertools
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import from_generator
from bert_tf.errors import user_error
from bert_tf.inputs.columns import TextColumns, holds_text
from bert_tf.inputs.token_rows import parallel_map

_NOTHING = object()
_NOT_COLLECTED = (
    Collection,
    keras.utils.PyDataset,
    tf.data.Dataset,
    tf.data.Iterator,
    tf.distribute.DistributedDataset,
    tf.distribute.DistributedIterator,
)


def materialize(x: Any, is_example: Callable[[Any], bool]) -> Any:
    """Returns an iterable as a list if `is_example` is true of its first item, else as it was."""
    if not isinstance(x, Iterable) or isinstance(x, _NOT_COLLECTED) or hasattr(x, "__array__"):
        return x
    items = iter(x)
    first = next(items, _NOTHING)
    if first is _NOTHING:
        return []
    if is_example(first):
        return [first, *items]
    return _resumed(first, items) if isinstance(x, Iterator) else x


def _resumed(first, items):
    # Keras recognizes a generator by its type, so it must be one and not an `itertools.chain`.
    yield first
    yield from items


def batches_of_text(
    x: Any, columns: Callable[[Any], TextColumns] | None, targets: Callable[[Any, Any], np.ndarray]
) -> Any:
    """Returns a dataset of the batches of a generator or `PyDataset` if they are raw text.

    Args:
        x: Anything; what is not such a stream is returned as in `materialize`.
        columns: Makes columns of the features of a batch; None: batches of text are refused.
        targets: Makes an array of the labels of a batch and its columns.

    Returns:
        A `tf.data.Dataset` of `features` or tuples `(features, labels, weights)`, features being
        strings `[B]` or a tuple of them.

    Raises:
        UserError: If the features are raw text and `columns` is None.
    """
    if isinstance(x, keras.utils.PyDataset):
        first = x[0]
        make_batches, count = (lambda: _of_dataset(x)), x.num_batches
    elif isinstance(x, types.GeneratorType):
        first = next(x)  # `materialize` has seen that there is one
        x = _resumed(first, x)
        make_batches, count = (lambda: x), None
    else:
        return x
    if not holds_text(_parts(first)[0]):
        return x
    if columns is None:
        expected = "be given together, as lists or columns: an example may become several windows"
        raise user_error("Texts", expected, f"batches of a {type(x).__name__}")

    def plain(batch):
        features, labels, *weights = _parts(batch)
        features = columns(features)
        all_features = (*features, *features.inputs.values())
        parts = [all_features if len(all_features) > 1 else features[0]]
        if labels is not None:
            parts.append(targets(labels, features))
            parts += [np.asarray(weight, np.float32) for weight in weights if weight is not None]
        return tuple(parts)

    def spec(values):
        dtype = tf.string if values.dtype == object else tf.as_dtype(values.dtype)
        return tf.TensorSpec([None, *values.shape[1:]], dtype)

    signature = tf.nest.map_structure(spec, plain(first))
    dataset = from_generator(lambda: map(plain, make_batches()), output_signature=signature)
    if count is None:
        return dataset
    return dataset.apply(tf.data.experimental.assert_cardinality(count))


def yields_text(x: Any) -> bool:
    """Returns whether `x` is a dataset whose features are strings."""
    if not isinstance(x, tf.data.Dataset):
        return False
    features = x.element_spec[0] if isinstance(x.element_spec, tuple) else x.element_spec
    return any(part.dtype == tf.string for part in tf.nest.flatten(features))


def stream_batches(preprocessor: Any, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of text as batches of tokens, with labels for the loss.

    Args:
        preprocessor: The `Preprocessor` of the task.
        dataset: Batches of strings `[B]` or tuples of them, with labels and weights, if any.

    Raises:
        UserError: If the elements are not batches of strings.
    """
    spec = dataset.element_spec
    features = spec[0] if isinstance(spec, tuple) else spec
    if isinstance(features, dict):
        expected = "be strings [B], or a tuple of them for pairs"
        received = f"a dictionary of {sorted(features)}. Pass `dataset.map(lambda row: row[...])`."
        raise user_error("Text in a dataset", expected, received)
    if any(spec.shape.rank == 0 for spec in tf.nest.flatten(features)):
        expected = "yield batches, strings [B]"
        raise user_error("A dataset of text", expected, "single strings. Pass `dataset.batch(32)`.")
    dataset = with_graph_targets(preprocessor, dataset, of_text=True)
    batches = parallel_map(dataset, lambda x, *rest: (preprocessor.tokens_of(x), *rest))
    return batches.prefetch(tf.data.AUTOTUNE)


def with_graph_targets(
    preprocessor: Any, dataset: tf.data.Dataset, of_text: bool = False
) -> tf.data.Dataset:
    """Returns a dataset with the preprocessor's `graph_targets` applied to its labels."""
    spec = dataset.element_spec
    if not isinstance(spec, tuple) or len(spec) < 2 or not isinstance(spec[1], tf.TensorSpec):
        return dataset
    targets = preprocessor.graph_targets(spec[1], of_text)
    if targets is None:
        return dataset
    return dataset.map(lambda x, labels, *rest: (x, targets(labels), *rest), tf.data.AUTOTUNE)


def _parts(batch):
    """Returns features, labels and weights of a batch, None for what it lacks."""
    if isinstance(batch, list) and batch and not isinstance(batch[0], (str, bytes, tuple)):
        batch = tuple(batch)  # as Keras
    return keras.utils.unpack_x_y_sample_weight(batch if isinstance(batch, tuple) else (batch,))


def _of_dataset(dataset):
    numbers = itertools.count() if dataset.num_batches is None else range(dataset.num_batches)
    for number in numbers:
        yield dataset[number]
    dataset.on_epoch_end()
