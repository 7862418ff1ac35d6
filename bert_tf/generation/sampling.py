"""Greedy decoding and sampling: every step chooses one token per sequence.

Glossary: `n` sequences, `S` maximum length with the start token, `V` vocabulary.
"""

from typing import Any

import tensorflow as tf

from bert_tf.generation.generation_config import GenerationConfig
from bert_tf.generation.logits_processors import process_logits, restrict_logits
from bert_tf.generation.next_token_model import Step, next_logits, write_tokens
from bert_tf.ops.philox import philox_uniform_bits_streams


def extend_sequences(
    step: Step,
    state: Any,
    token_ids: tf.Tensor,
    config: GenerationConfig,
    end_id: int,
    pad_id: int,
    vocab_size: int,
    random_numbers: tf.Tensor | None = None,
) -> tf.Tensor:
    """Extends every sequence by one token per step, until all are finished.

    Args:
        step: The model.
        state: Its state before the start tokens, with n rows.
        token_ids: The start tokens, followed by the pad token, int32 `[n, S]`.
        config: The `GenerationConfig`.
        end_id: The id of the end token.
        pad_id: The id that follows the end token.
        vocab_size: V.
        random_numbers: Uniform in [0, 1), float64 `[n, S - 1]`. None chooses the most probable
            token.

    Returns:
        The sequences, int32 `[n, S]`.
    """

    def extend(position, token_ids, is_finished, state):
        logits, state = next_logits(step, token_ids, position, state, vocab_size)
        logits = process_logits(logits, token_ids, position, config, end_id)
        if random_numbers is None:
            chosen = _first_of_the_largest(logits)
        else:
            chosen = _draw(restrict_logits(logits, config), random_numbers[:, position])
        chosen = tf.where(is_finished, pad_id, chosen)
        token_ids = write_tokens(token_ids, position + 1, chosen)
        return position + 1, token_ids, is_finished | (chosen == end_id), state

    _, token_ids, _, _ = tf.while_loop(
        lambda position, token_ids, is_finished, state: ~tf.reduce_all(is_finished),
        extend,
        (tf.constant(0), token_ids, tf.zeros_like(token_ids[:, 0], tf.bool), state),
        maximum_iterations=config.max_new_tokens,
    )
    return token_ids


def uniform_numbers(seed: int | tf.Tensor, streams: tf.Tensor, count: int) -> tf.Tensor:
    """Returns `count` random numbers in [0, 1) of each stream, which depend on nothing else.

    Args:
        seed: An int or a scalar int64 tensor.
        streams: The numbers of the streams, int64 `[n]`.
        count: An int.

    Returns:
        Float64 `[n, count]`.
    """
    bits = philox_uniform_bits_streams(seed, streams, count)
    return tf.cast(bits, tf.float64) * 2.0**-32


def _draw(logits, random_numbers):
    """Draws a token of each row by the inverse of the cumulative distribution, int32 `[n]`.

    Only tokens with a probability above zero are drawn, however sums are rounded.
    """
    probabilities = tf.cast(tf.nn.softmax(logits), tf.float64)  # [n, V]
    sums = tf.where(probabilities > 0, tf.cumsum(probabilities, axis=1), 0)
    threshold = random_numbers[:, tf.newaxis] * tf.reduce_max(sums, axis=1, keepdims=True)
    return _first_of_the_largest(tf.cast(sums > threshold, tf.float32))


def _first_of_the_largest(values):
    """As `tf.argmax`, which does not say which of several equal values it finds, int32 `[n]`."""
    return tf.math.top_k(values, 1).indices[:, 0]
