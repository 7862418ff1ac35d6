"""Texts that a preprocessor has read become batches of tokens: in memory, or as a stream.

A preprocessor says which rows of tokens texts become (`training_rows`, `tokens_of`) and what their
labels are. How rows become batches is the same for all tasks.

Glossary: `n` rows, `B` rows of a batch, `K` parts of a row, `T` tokens.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.inputs.balanced_rows import ReplicaShare
from bert_tf.inputs.batches import IGNORED, EpochBatches, TextEpochs
from bert_tf.inputs.columns import TextColumns
from bert_tf.inputs.token_rows import TokenRows, feature_specs

DEFAULT_BATCH_SIZE = 32  # Keras's own


def text_batches(
    preprocessor: Any,
    x: TextColumns | tf.data.Dataset,
    y: Any = None,
    sample_weight: Any = None,
    batch_size: int | None = None,
    shuffle: bool = False,
    training: bool = False,
    token_budget: int | None = None,
    epochs: TextEpochs | None = None,
    share: ReplicaShare | None = None,
) -> tf.data.Dataset:
    """Returns batches `(tokens, labels, weights)` of raw text.

    Args:
        preprocessor: The `Preprocessor` of the task.
        x: What its `read` returned. A dataset has its own labels and batches.
        y: What its `targets` returned.
        sample_weight: The weight of each example, or None.
        batch_size: The number of rows of a batch; None for 32.
        shuffle: Whether each epoch has a different order.
        training: Whether the batches are for training, not for evaluation.
        token_budget: In place of `batch_size`, the maximum number of tokens of a batch.
        epochs: The epochs of the texts; None for the first one of seed 0.
        share: The part of each batch that this worker computes, in a batch for each of its
            replicas; None for whole batches.

    Raises:
        UserError: If there is no text, or not one label and weight for each, or batches cannot
            have `token_budget` tokens.
    """
    preprocessor.require_tokenizer()
    if isinstance(x, tf.data.Dataset):
        return preprocessor.batches(x, training)
    epochs = epochs or TextEpochs()
    rows, labels = preprocessor.training_rows(x, y, sample_weight)
    groups = _examples_of_texts(x) if training and preprocessor.no_duplicates else None
    options = {"seed": epochs.seed, "shuffle": shuffle, "groups": groups}
    if token_budget is None:
        batches = EpochBatches(np.ones(len(rows)), batch_size or DEFAULT_BATCH_SIZE, **options)
    else:
        if preprocessor.static_length is not None:
            raise UserError(
                "`token_budget` must be None with `jit_compile=True`: XLA compiles batches of one "
                f"size. Received: {token_budget=}"
            )
        options["padded"] = not preprocessor.packs_tokens()
        sizes = rows.sizes(options["padded"])
        batches = EpochBatches(sizes, token_budget=token_budget, **options)
    if groups is not None:
        batches.report_left_out(epochs.epoch)
    numbers = epochs.batches(batches)
    if share is not None:
        lengths = rows.sizes(padded=False).reshape(len(rows), -1).sum(axis=1)  # [n, K] -> [n]
        numbers = share.of(numbers, lengths)
    return preprocessor.batches(rows, training, labels, numbers, epochs.seed)


def batches_of_numbers(
    rows: TokenRows, labels: tuple, numbers: tf.data.Dataset, length: int | None = None
) -> tf.data.Dataset:
    """Returns batches of `(features, *labels)` for a dataset of row numbers int64 `[B]`.

    `labels` are labels and weights of the rows: arrays `[n, ...]`, or ragged tensors `[n, (T)]`,
    which are padded with `IGNORED`; `length` is that of `TokenRows.batch`. Each element of
    `numbers` may come with its epoch, on which these batches do not depend.
    """
    specs = feature_specs(rows.batch(np.zeros([0], np.int64), length), rows.inputs, bool(length))
    dtypes = [spec.dtype for spec in specs.values()]
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        labels = [v if isinstance(v, tf.RaggedTensor) else tf.constant(v) for v in labels]

    def arrays(numbers):
        features = rows.batch(numbers, length)
        return list(map(features.get, specs))

    @tf.autograph.experimental.do_not_convert
    def batch(numbers, *epoch):
        values = tf.numpy_function(arrays, [numbers], dtypes, stateful=False)
        features, targets = {}, []
        for (name, spec), value in zip(specs.items(), values, strict=True):
            features[name] = tf.ensure_shape(value, [*numbers.shape, *spec.shape[1:]])
        for value in labels:
            value = tf.gather(value, numbers)
            if isinstance(value, tf.RaggedTensor):
                value = value.to_tensor(IGNORED, shape=[None, length])
            targets.append(value)
        return (features, *targets)

    batches = parallel_map(numbers, also_for_no_rows(batch, numbers.element_spec))
    return batches.prefetch(tf.data.AUTOTUNE)


def also_for_no_rows(function: Callable, spec: Any) -> Callable:
    """Returns a function of tensors `[B]` that also takes B = 0, as a replica may have no rows.

    It lets `function` compute a row of zeros, without which there is no length to pad to.

    Args:
        function: A function of any nest of tensors `[B]` and scalars, which returns tensors
            `[B, ...]`.
        spec: The specification of its arguments, of which the first is `[B]`; with a known B, the
            function is returned as it is.
    """
    if tf.nest.flatten(spec)[0].shape[0] is not None:
        return function

    @tf.autograph.experimental.do_not_convert
    def call(*tensors):
        count = tf.size(tf.nest.flatten(tensors)[0])
        paddings = [[0, tf.cast(count == 0, tf.int32)]]
        tensors = tf.nest.map_structure(
            lambda v: tf.pad(v, paddings) if v.shape.rank else v, tensors
        )
        return tf.nest.map_structure(lambda v: v[:count], function(*tensors))

    return call


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
        raise UserError(
            "Text in a dataset must be strings [B], or a tuple of them for pairs. Received: a "
            f"dictionary of {sorted(features)}. Pass `dataset.map(lambda row: row[...])`."
        )
    if any(spec.shape.rank == 0 for spec in tf.nest.flatten(features)):
        raise UserError(
            "A dataset of text must yield batches, strings [B]. Received: single strings. "
            "Pass `dataset.batch(32)`."
        )
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
    return parallel_map(dataset, lambda x, labels, *rest: (x, targets(labels), *rest))


def _examples_of_texts(columns):
    """Returns a number for each text of every example, int64 `[n, K]`, the same for equal texts."""
    texts = np.stack(columns, axis=1)
    return np.unique(texts, return_inverse=True)[1].reshape(texts.shape)


def parallel_map(dataset: tf.data.Dataset, function: Callable) -> tf.data.Dataset:
    """Returns `dataset.map(function)`, in order, computed in parallel."""
    return dataset.map(function, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
