"""Beam search with the scores and the stopping rules of transformers.

Each step extends the K beams of a row by all tokens and takes the E best candidates: K, and K more
for each end token, so at least K beams remain. Candidates that end compete with the finished
sequences by their scores: the log probability divided by the length to the power `length_penalty`.

Equal scores are ordered by beam, then by token id; transformers leaves their order open.

Glossary: `B` batch, `K` beams, `E` extended beams, `S` maximum length with the start token, `V`
vocabulary, `W` stop strings.

Reference: transformers, generation/utils.py, `_beam_search`; Wu et al. 2016 (arXiv 1609.08144),
section 7.
"""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.generation.decoding_loop import Decoding, run_loop, take_rows, write_tokens
from bert_tf.generation.generation_config import NEVER
from bert_tf.generation.logits_processors import FORBIDDEN

# Matches transformers: the score of a finished sequence that does not exist yet. (There, beams that
# must not be extended have it too, so where few tokens are allowed, they are returned.)
MISSING = -1e9


class Beams(NamedTuple):
    """The beams, the best first, and the finished sequences with the best scores."""

    token_ids: tf.Tensor  # int32 [B, K, S]
    stop_states: tf.Tensor  # of the `StopAutomaton`, int32 [B, K, W]
    log_probs: tf.Tensor  # the sum over the tokens, float32 [B, K]
    finished_ids: tf.Tensor  # int32 [B, K, S]
    finished_scores: tf.Tensor  # float32 [B, K]
    is_finished: tf.Tensor  # whether this finished sequence exists, bool [B, K]
    may_improve: tf.Tensor  # whether a beam may become a better sequence, bool [B, 1]


class BeamCandidates(NamedTuple):
    """The E best extensions of the beams of each row by one token, the best first."""

    beams: tf.Tensor  # which beam they extend, int32 [B, E]
    token_ids: tf.Tensor  # int32 [B, E, S]
    stop_states: tf.Tensor  # int32 [B, E, W]
    log_probs: tf.Tensor  # float32 [B, E]
    is_end: tf.Tensor  # whether they cannot be extended, bool [B, E]


class BeamSearch(Decoding):
    """Finds probable sequences by beam search."""

    def run(self, state: Any, memory: Any, token_ids: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Runs until no row can improve.

        Returns:
            The sequences of each row, the best first, int32 `[B, K, S]`, and their scores, float32
            `[B, K]`.
        """
        zeros = tf.zeros_like(token_ids[:, :, 0], tf.float32)  # [B, K]
        # All beams of a row begin equal, so the first step extends only one of them.
        is_first = tf.range(self.config.num_beams) == 0
        beams = Beams(
            token_ids=token_ids,
            stop_states=self.stops.start(zeros),
            log_probs=zeros + tf.where(is_first, 0.0, FORBIDDEN),
            finished_ids=token_ids,
            finished_scores=zeros + MISSING,
            is_finished=tf.zeros_like(zeros, tf.bool),
            may_improve=tf.ones_like(zeros[:, :1], tf.bool),
        )
        beams = run_loop(
            self._extend, self._is_open, beams, state, memory, self.config.max_new_tokens
        )
        return beams.finished_ids, beams.finished_scores

    def _is_open(self, beams):
        """Returns whether the finished sequences of each row may still change, bool `[B]`."""
        is_open = beams.may_improve[:, 0]
        if self.config.early_stopping is True:
            is_open &= ~tf.reduce_all(beams.is_finished, axis=1)
        return is_open

    def _extend(self, position, beams, state, memory):
        """Extends the beams, whose last known token is at `position`, by one token."""
        candidates, state = self._candidates(position, beams, state, memory)
        finished = self._finished(position, beams, candidates)

        log_probs = tf.where(candidates.is_end, FORBIDDEN, candidates.log_probs)
        log_probs, chosen = tf.math.top_k(log_probs, self.config.num_beams)  # [B, K]
        parents = tf.gather(candidates.beams, chosen, batch_dims=1)  # [B, E] -> [B, K]
        row_starts = tf.range(tf.shape(parents)[0])[:, tf.newaxis] * self.config.num_beams  # [B, 1]
        state = take_rows(state, tf.reshape(parents + row_starts, [-1]))  # [B, K] -> [B * K]
        beams = beams._replace(
            token_ids=tf.gather(candidates.token_ids, chosen, batch_dims=1),  # [B, K, S]
            stop_states=tf.gather(candidates.stop_states, chosen, batch_dims=1),  # [B, K, W]
            log_probs=log_probs,
            **finished,
        )
        return beams._replace(may_improve=self._may_improve(position, beams)), state

    def _candidates(self, position, beams, state, memory):
        """Returns the `BeamCandidates` and the state of the model after the step."""
        num_beams, vocab_size = self.config.num_beams, self.vocab_size
        sequences = tf.reshape(beams.token_ids, [-1, beams.token_ids.shape[2]])  # -> [B * K, S]
        log_probs, state, _ = self.next_logits(  # [B * K, V]
            sequences, position, state, memory, tf.nn.log_softmax
        )
        log_probs = tf.reshape(log_probs, [-1, num_beams, vocab_size])  # -> [B, K, V]
        log_probs += beams.log_probs[:, :, tf.newaxis]
        log_probs = tf.reshape(log_probs, [-1, num_beams * vocab_size])  # -> [B, K * V]
        count = num_beams * (1 + len(self.end_ids))  # E
        log_probs, places = tf.math.top_k(log_probs, count)  # [B, E]
        parents, last_ids = places // vocab_size, places % vocab_size
        token_ids = tf.gather(beams.token_ids, parents, batch_dims=1)  # [B, K, S] -> [B, E, S]
        stop_states = tf.gather(beams.stop_states, parents, batch_dims=1)  # [B, K, W] -> [B, E, W]
        stop_states = self.stops.advance(stop_states, last_ids)
        is_longest = position + 1 == self.config.max_new_tokens
        candidates = BeamCandidates(
            beams=parents,
            token_ids=write_tokens(token_ids, position + 1, last_ids),
            stop_states=stop_states,
            log_probs=log_probs,
            is_end=self.ends(last_ids, stop_states) | is_longest,
        )
        return candidates, state

    def _finished(self, position, beams, candidates):
        """Returns the best of the finished sequences and of the candidates that end."""
        num_beams = self.config.num_beams
        # The other candidates only replace those that end.
        is_among_best = tf.range(candidates.beams.shape[1]) < num_beams  # [E]
        is_finished = candidates.is_end & is_among_best  # [B, E]
        is_open = self._is_open(beams)[:, tf.newaxis]  # [B, 1]
        scores = candidates.log_probs / self._divisors()[position]
        scores = tf.where(is_open & is_finished, scores, FORBIDDEN)

        scores = tf.concat([beams.finished_scores, scores], axis=1)  # [B, K + E]
        scores, chosen = tf.math.top_k(scores, num_beams)  # [B, K]
        token_ids = tf.concat([beams.finished_ids, candidates.token_ids], axis=1)  # [B, K + E, S]
        is_finished = tf.concat([beams.is_finished, is_finished], axis=1)  # [B, K + E]
        return {
            "finished_ids": tf.gather(token_ids, chosen, batch_dims=1),  # [B, K, S]
            "finished_scores": scores,
            "is_finished": tf.gather(is_finished, chosen, batch_dims=1),  # [B, K]
        }

    def _may_improve(self, position, beams):
        """Returns whether the best beam may still get a better score than a finished sequence.

        Matches transformers: a row that could not improve once is never extended again, and the
        score that a beam may get is the one at its current length, unless `early_stopping` is
        "never" and long sequences are favored.
        """
        is_longest_best = self.config.early_stopping == NEVER and self.config.length_penalty > 0
        length_index = -1 if is_longest_best else position
        possible = beams.log_probs[:, :1] / self._divisors()[length_index]  # [B, 1]
        worst = tf.reduce_min(beams.finished_scores, axis=1, keepdims=True)  # [B, 1]
        worst = tf.where(beams.is_finished, worst, MISSING)  # [B, K]
        return beams.may_improve & tf.reduce_any(possible > worst, axis=1, keepdims=True)

    def _divisors(self):
        """Returns the divisors of the scores of sequences with 1, 2, … new tokens, float32."""
        lengths = np.arange(1, self.config.max_new_tokens + 1, dtype=np.float64)
        return tf.constant(lengths**self.config.length_penalty, tf.float32)
