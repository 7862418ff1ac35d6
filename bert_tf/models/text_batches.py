"""Many texts in batches of equal work: tokenized ahead, sorted by length, cut by a token budget."""

import numpy as np
import tensorflow as tf

from bert_tf.data.long_texts import token_windows
from bert_tf.data.token_budget import token_batches
from bert_tf.text import packing

# Tokens of a batch, padding counted: enough for the matmuls to run at their limit, few enough for
# the activations of BERT-base to take less than 200 MB.
TOKEN_BUDGET = 4096
# Sorted together. One such chunk is tokenized while the model works on the one before.
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
    budget = token_budget or TOKEN_BUDGET

    def cut(lengths):
        return token_batches(lengths, budget, padded=True)[:2]

    def tokenize(*texts):
        if window_stride is None:
            tokens = tokenizer(*texts, max_length=max_length, ragged=True)
            return {**tokens, EXAMPLE_INDEX: tf.range(tokens["token_ids"].nrows())}
        ids = tokenizer.tokenize(texts[0])
        windows, text_of_window = token_windows(ids, max_length - 2, window_stride)
        token_ids, segment_ids = packing.pack(
            windows, None, tokenizer.cls_token_id, tokenizer.sep_token_id, None, "longest_first"
        )
        return {
            "token_ids": token_ids, "segment_ids": segment_ids, EXAMPLE_INDEX: text_of_window
        }

    def batches_of_chunk(chunk, tokens):
        token_ids, segment_ids = tokens["token_ids"], tokens["segment_ids"]
        order, splits = tf.numpy_function(cut, [token_ids.row_lengths()], [tf.int64, tf.int64])
        order, splits = tf.ensure_shape(order, [None]), tf.ensure_shape(splits, [None])

        def batch(number):
            rows = order[splits[number] : splits[number + 1]]
            ids = tf.gather(token_ids, rows)  # ragged [n, (T)] -> [B, (T)]
            return {
                "token_ids": ids.to_tensor(tokenizer.pad_token_id),
                "segment_ids": tf.gather(segment_ids, rows).to_tensor(),
                "padding_mask": tf.sequence_mask(ids.row_lengths()),
                EXAMPLE_INDEX: chunk * CHUNK_OF_TEXTS + tf.gather(tokens[EXAMPLE_INDEX], rows),
            }

        count = tf.size(splits, tf.int64) - 1
        return tf.data.Dataset.range(count).map(batch, num_parallel_calls=1)

    chunks = tf.data.Dataset.from_tensor_slices(columns).batch(CHUNK_OF_TEXTS)
    tokenized = chunks.map(tokenize, num_parallel_calls=1).prefetch(1)
    return tokenized.enumerate().flat_map(batches_of_chunk).prefetch(tf.data.AUTOTUNE)


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
