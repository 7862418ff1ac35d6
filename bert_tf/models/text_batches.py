"""Many texts in batches of equal work: sorted by length, cut by a token budget."""

import numpy as np
import tensorflow as tf

from bert_tf.data.token_budget import token_batches
from bert_tf.models.tokenized_texts import TokenizedTexts

# Tokens of a batch, padding counted: enough for the matmuls to run at their limit, few enough for
# the activations of BERT-base to take less than 200 MB.
TOKEN_BUDGET = 4096
# Sorted together, so that what happens to one batch does not wait for the longest text of all.
CHUNK_OF_TEXTS = 8192
# The feature that carries each example's place in the caller's list.
EXAMPLE_INDEX = "example_index"


def text_batches(
    tokenizer,
    columns: tuple[np.ndarray, ...],
    max_length: int,
    token_budget: int | None = None,
    window_stride: int | None = None,
) -> tf.data.Dataset:
    """Texts to padded batches of at most `token_budget` tokens, longest first in every chunk.

    Args:
        tokenizer: A `BertTokenizer`.
        columns: One array of strings `[n]`, or two for pairs.
        max_length: Longer sequences are cut.
        token_budget: Largest `B * T` of a batch; a longer single text is a batch of its own.
        window_stride: Single texts are not cut but become windows, one every so many tokens.

    Returns:
        A dataset of dictionaries: `token_ids`, `segment_ids` int32 and `padding_mask` bool
        `[B, T]`, and `example_index` int64 `[B]`; the windows of a text share its index.
    """
    if window_stride is None:
        texts = TokenizedTexts.of(tokenizer, columns, max_length)
        text_of_row = np.arange(len(columns[0]))
    else:
        texts, text_of_row = TokenizedTexts.of_windows(
            tokenizer, columns[0], max_length, window_stride
        )
    order, splits = _sorted_in_chunks(texts.lengths(), token_budget or TOKEN_BUDGET)
    num_batches = len(splits) - 1
    with tf.device("CPU:0"):  # made here, so that the graph of `batch` does not hold their values
        order, splits, text_of_row = map(tf.constant, (order, splits, text_of_row))

    def batch(number):
        rows = order[splits[number] : splits[number + 1]]
        return {**texts.batch(rows), EXAMPLE_INDEX: tf.gather(text_of_row, rows)}

    return (
        tf.data.Dataset.range(num_batches)
        .map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        .prefetch(tf.data.AUTOTUNE)
    )


def _sorted_in_chunks(lengths, budget):
    """Rows in the order of their batches, int64 `[n]`, and where each batch starts `[M + 1]`."""
    order, splits = [np.zeros([0], np.int64)], [np.zeros([1], np.int64)]
    for start in range(0, len(lengths), CHUNK_OF_TEXTS):
        chunk = token_batches(lengths[start : start + CHUNK_OF_TEXTS], budget, padded=True)
        order.append(start + chunk.order)
        splits.append(start + chunk.splits[1:])
    return np.concatenate(order), np.concatenate(splits)


def in_given_order(outputs, indices: np.ndarray):
    """Outputs of sorted examples, put back.

    Args:
        outputs: A nest of arrays `[n, ...]`.
        indices: `[n]`, each row's `example_index`.
    """
    order = np.argsort(indices)
    return tf.nest.map_structure(lambda values: np.asarray(values)[order], outputs)


def pooled_windows(outputs, indices: np.ndarray, pooling: str):
    """One output a text from the outputs of its windows, in the order of the texts.

    Args:
        outputs: A nest of arrays `[windows, ...]`.
        indices: `[windows]`, each one's `example_index`; every text has a window.
        pooling: "mean" or "max".
    """
    order = np.argsort(indices, kind="stable")
    starts = np.flatnonzero(np.diff(indices[order], prepend=-1))

    def pool(values):
        values = np.asarray(values)[order]
        if pooling == "max":
            return np.maximum.reduceat(values, starts)
        counts = np.diff(np.append(starts, len(values)))
        means = np.add.reduceat(values.astype(np.float64), starts)
        means /= counts.reshape([-1] + [1] * (values.ndim - 1))
        return means.astype(values.dtype)

    return tf.nest.map_structure(pool, outputs)
