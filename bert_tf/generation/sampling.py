"""Greedy decoding and sampling: every step chooses one token per sequence.

Glossary: `B` batch, `K` sequences per row, `n = B * K` sequences, `S` maximum length with the start
token, `V` vocabulary.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.generation.decoding_loop import Decoding, run_loop, write_tokens
from bert_tf.generation.logits_processors import restrict_logits
from bert_tf.ops.philox import philox_uniform_bits_streams


class Sequences(NamedTuple):
    """The sequences of each row, K of them; random numbers are uniform in [0, 1)."""

    token_ids: tf.Tensor  # int32 [B, K, S]
    is_finished: tf.Tensor  # bool [B, K]
    random_numbers: tf.Tensor | tuple  # float64 [B, K, S - 1]; () chooses the most probable tokens


class TokenChoice(Decoding):
    """Chooses one token per step: the most probable one, or at random."""

    def run(
        self, state: Any, memory: Any, token_ids: tf.Tensor, random_numbers: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Returns the sequences, int32 `[B, K, S]`.

        `random_numbers` are uniform in [0, 1), float64 `[B, K, S - 1]`. None chooses the most
        probable token.
        """
        is_finished = tf.zeros_like(token_ids[:, :, 0], tf.bool)
        numbers = () if random_numbers is None else random_numbers
        return run_loop(
            self._extend,
            lambda sequences: ~tf.reduce_all(sequences.is_finished, axis=1),
            Sequences(token_ids, is_finished, numbers),
            state,
            memory,
            self.config.max_new_tokens,
        ).token_ids

    def _extend(self, position, sequences, state, memory):
        """Extends the sequences, whose last known token is at `position`, by one token."""
        token_ids = sequences.token_ids  # [B, K, S]
        copies, length = token_ids.shape[1:]
        flat_ids = tf.reshape(token_ids, [-1, length])  # [B, K, S] -> [n, S]
        logits, state = self.next_logits(flat_ids, position, state, memory)
        if isinstance(sequences.random_numbers, tuple):
            chosen = _first_of_the_largest(logits)
        else:
            numbers = tf.reshape(sequences.random_numbers[:, :, position], [-1])  # [B, K] -> [n]
            chosen = _draw(restrict_logits(logits, self.config), numbers)
        chosen = tf.reshape(chosen, [-1, copies])  # [n] -> [B, K]
        chosen = tf.where(sequences.is_finished, self.pad_id, chosen)
        sequences = sequences._replace(
            token_ids=write_tokens(token_ids, position + 1, chosen),
            is_finished=sequences.is_finished | (chosen == self.end_id),
        )
        return sequences, state


def uniform_numbers(seed: int | tf.Tensor, streams: tf.Tensor, count: int) -> tf.Tensor:
    """Returns numbers in [0, 1) of streams int64 `[n]`, which depend on nothing else.

    They are float64 `[n, count]`.
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
    """Returns the first place of the largest value, int32 `[n]`; `tf.argmax` may return any."""
    return tf.math.top_k(values, 1).indices[:, 0]
