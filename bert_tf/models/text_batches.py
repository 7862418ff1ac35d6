"""Many texts in batches of equal work: tokenized ahead, sorted by length, cut by a token budget."""

import numpy as np
import tensorflow as tf

from bert_tf.data.token_budget import token_batches

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
) -> tf.data.Dataset:
    """Texts to padded batches of at most `token_budget` tokens, longest first in every chunk.

    Args:
        tokenizer: A `BertTokenizer`.
        columns: One array of strings `[n]`, or two for pairs.
        max_length: Longer sequences are cut.
        token_budget: Largest `B * T` of a batch; a longer single text is a batch of its own.

    Returns:
        A dataset of dictionaries: `token_ids`, `segment_ids` int32 and `padding_mask` bool
        `[B, T]`, and `example_index` int64 `[B]`.
    """
    budget = token_budget or TOKEN_BUDGET

    def cut(lengths):
        return token_batches(lengths, budget, padded=True)[:2]

    def tokenize(*texts):
        return tokenizer(*texts, max_length=max_length, ragged=True)

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
                EXAMPLE_INDEX: chunk * CHUNK_OF_TEXTS + rows,
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
