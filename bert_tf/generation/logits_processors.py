"""Changes of the logits before a token is chosen: penalties, forbidden tokens, restrictions.

They compute what the logits processors of transformers compute, in the graph and for all sequences
at once. Glossary: `n` sequences, `S` maximum length with the start token, `V` vocabulary. The
tokens `[n, S]` are known up to `position`, and the logits are those of the next position.
"""

import tensorflow as tf

from bert_tf.generation.generation_config import GenerationConfig

FORBIDDEN = float("-inf")


def process_logits(
    logits: tf.Tensor,
    token_ids: tf.Tensor,
    position: tf.Tensor,
    config: GenerationConfig,
    end_id: int,
) -> tf.Tensor:
    """Applies the rules that hold for every way of choosing tokens, in the order of transformers.

    Where the rules forbid all tokens, greedy decoding and sampling choose the token 0.

    Args:
        logits: Float32 `[n, V]`: for beam search log probabilities. The result has the same shape.
        token_ids: The sequences with their start tokens, int32 `[n, S]`.
        position: The last known position, a scalar int32.
        config, end_id: The `GenerationConfig`, and the id of the end token.
    """
    if config.repetition_penalty != 1.0:
        logits = penalize_repetitions(logits, token_ids, position, config.repetition_penalty)
    if config.no_repeat_ngram_size:
        logits = forbid_repeated_ngrams(logits, token_ids, position, config.no_repeat_ngram_size)
    if config.min_new_tokens:
        is_end = tf.range(tf.shape(logits)[1]) == end_id  # [V]
        is_forbidden = is_end & (position < config.min_new_tokens)
        logits = tf.where(is_forbidden, FORBIDDEN, logits)
    return logits


def penalize_repetitions(
    logits: tf.Tensor, token_ids: tf.Tensor, position: tf.Tensor, penalty: float
) -> tf.Tensor:
    """Makes the tokens that occurred less likely (for a `penalty` above 1), each once."""
    is_known = tf.range(token_ids.shape[1]) <= position  # [S]
    seen = tf.where(is_known, token_ids, token_ids[:, :1])  # [n, S]; the start token fills the rest
    values = tf.gather(logits, seen, batch_dims=1)  # [n, V] at [n, S] -> [n, S]
    values = tf.where(values < 0, values * penalty, values / penalty)
    return tf.tensor_scatter_nd_update(logits, _places(seen), values)


def forbid_repeated_ngrams(
    logits: tf.Tensor, token_ids: tf.Tensor, position: tf.Tensor, size: int
) -> tf.Tensor:
    """Forbids the tokens that would complete a sequence of `size` tokens for the second time.

    Reference: Paulus et al. 2017 (arXiv 1705.04304), section 2.5.
    """
    length = token_ids.shape[1]
    num_windows = length - size + 1
    if num_windows < 1:
        return logits
    # A window is `size` tokens in a row. It matches if all its tokens but the last are the last
    # known tokens. Then its last token must not follow again.
    is_match = tf.range(num_windows) + size - 1 <= position  # [windows]: all its tokens are known
    for index in range(size - 1):
        # Negative only while no window is known.
        place = tf.maximum(position + 2 - size + index, 0)
        last = tf.gather(token_ids, place, axis=1)[:, tf.newaxis]  # [n, 1]
        is_match &= token_ids[:, index : index + num_windows] == last  # [n, windows]
    forbidden = token_ids[:, size - 1 :]  # [n, windows]
    values = tf.where(is_match, FORBIDDEN, -FORBIDDEN)
    values = tf.broadcast_to(values, tf.shape(forbidden))  # [windows] if `size` is 1
    return tf.tensor_scatter_nd_min(logits, _places(forbidden), values)


def restrict_logits(logits: tf.Tensor, config: GenerationConfig) -> tf.Tensor:
    """Applies `temperature`, `top_k` and `top_p`, in this order, to float32 `[n, V]`.

    `top_k` keeps all tokens that are as probable as the last one, as in transformers, and `top_p`
    leaves out the least probable tokens, one by one, while their sum is at most 1 - `top_p`.
    """
    logits = logits / config.temperature
    vocab_size = logits.shape[1]
    if config.top_k is not None and config.top_k < vocab_size:
        lowest = tf.math.top_k(logits, config.top_k).values[:, -1:]  # [n, 1]
        logits = tf.where(logits < lowest, FORBIDDEN, logits)
    if config.top_p is not None and config.top_p < 1.0:
        order = tf.argsort(logits, stable=True)  # [n, V], the most probable last
        values = tf.gather(logits, order, batch_dims=1)
        # PyTorch's cumsum adds in float64 and rounds each sum to float32.
        sums = tf.cumsum(tf.cast(tf.nn.softmax(values), tf.float64), axis=1)
        is_left_out = tf.cast(sums, tf.float32) <= 1.0 - config.top_p
        is_left_out &= tf.range(vocab_size) < vocab_size - 1
        values = tf.where(is_left_out, FORBIDDEN, values)
        logits = tf.tensor_scatter_nd_update(logits, _places(order), values)
    return logits


def _places(token_ids):
    """Returns the indices of these tokens in `[n, V]`: `[n, count]` -> `[n, count, 2]`."""
    rows = tf.range(tf.shape(token_ids)[0])[:, tf.newaxis]  # [n, 1]
    return tf.stack([tf.broadcast_to(rows, tf.shape(token_ids)), token_ids], axis=2)
