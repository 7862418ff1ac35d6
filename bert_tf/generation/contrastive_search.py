"""Contrastive search: chooses among the most probable tokens the one unlike the tokens before.

Each step computes the K most probable next tokens of a sequence. A token's score is its probability
times `1 - penalty_alpha`, minus `penalty_alpha` times the greatest cosine similarity of its vector
to the vectors of the tokens before.

Glossary: `B` batch, `K` candidates, `n = B * K`, `S` maximum length with the start token, `H` size
of a vector, `V` vocabulary, `W` stop strings.

Reference: Su et al. 2022 (arXiv 2202.06417), section 4.2; transformers 4.48, generation/utils.py,
`_contrastive_search`.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.errors import require
from bert_tf.generation.decoding_loop import Decoding, Memory, run_loop, take_rows, write_tokens


class Contrasted(NamedTuple):
    """The sequence of each row, and the tokens of which one is the next."""

    token_ids: tf.Tensor  # the sequence with each of the next tokens, int32 [B, K, S]
    probabilities: tf.Tensor  # of the next tokens, float32 [B, K]
    vectors: tf.Tensor  # unit vectors of the sequence, float32 [B, S, H]
    stop_states: tf.Tensor  # of the `StopAutomaton`, int32 [B, W]
    is_finished: tf.Tensor  # bool [B]


class ContrastiveSearch(Decoding):
    """Finds a probable sequence whose tokens have different vectors."""

    def run(self, state: Any, memory: Memory, token_ids: tf.Tensor) -> tf.Tensor:
        """Runs until all rows are finished, and returns the sequences, int32 `[B, 1, S]`."""
        start = tf.constant(0)
        logits, vectors, state = self._computed(token_ids, start, state, memory)
        vectors = tf.pad(vectors[:, :1], [[0, 0], [0, token_ids.shape[2] - 1], [0, 0]])
        is_finished = tf.zeros_like(token_ids[:, 0, 0], tf.bool)
        stop_states = self.stops.start(is_finished)
        sequences = self._with_candidates(
            start, Contrasted(token_ids, (), vectors, stop_states, is_finished), logits[:, 0]
        )
        return run_loop(
            self._extend,
            lambda sequences: ~sequences.is_finished,
            sequences,
            state,
            memory,
            self.config.max_new_tokens,
        ).token_ids[:, :1]

    def _computed(self, token_ids, position, state, memory):
        """Returns what a step computes of the tokens at `position` of sequences `[B, K, S]`.

        These are the logits `[B, K, V]`, the unit vectors `[B, K, H]` and the state.
        """
        copies, length = token_ids.shape[1:]
        flat_ids = tf.reshape(token_ids, [-1, length])  # [B, K, S] -> [n, S]
        logits, state, vectors = self.next_logits(flat_ids, position, state, memory)
        rule = "needs a step that returns the vectors of the tokens too"
        require(vectors is not None, rule, penalty_alpha=self.config.penalty_alpha)
        vectors = tf.math.l2_normalize(tf.cast(vectors, tf.float32), axis=1)
        logits = tf.reshape(logits, [-1, copies, self.vocab_size])  # [n, V] -> [B, K, V]
        return logits, tf.reshape(vectors, [-1, copies, vectors.shape[1]]), state

    def _with_candidates(self, position, sequences, logits):
        """Appends the most probable tokens to sequences up to `position`, by logits `[B, V]`."""
        count = sequences.token_ids.shape[1]
        probabilities, ids = tf.math.top_k(tf.nn.softmax(logits), count)  # [B, K]
        ids = tf.where(sequences.is_finished[:, tf.newaxis], self.pad_id, ids)
        token_ids = write_tokens(sequences.token_ids, position + 1, ids)
        return sequences._replace(token_ids=token_ids, probabilities=probabilities)

    def _extend(self, last, sequences, state, memory):
        """Chooses a token of each row after the position `last`, and finds those for the next."""
        position, alpha = last + 1, self.config.penalty_alpha
        logits, vectors, state = self._computed(sequences.token_ids, position, state, memory)
        similarities = tf.matmul(vectors, sequences.vectors, transpose_b=True)  # [B, K, S]
        is_known = tf.range(similarities.shape[2]) < position
        penalties = tf.reduce_max(tf.where(is_known, similarities, -1.0), axis=2)  # [B, K]
        scores = (1.0 - alpha) * sequences.probabilities - alpha * penalties
        best = tf.math.top_k(scores, 1).indices  # the first of equal ones, [B, 1]

        num_rows, count = tf.shape(best)[0], scores.shape[1]
        parents = best + tf.range(num_rows)[:, tf.newaxis] * count  # [B, 1]
        state = take_rows(state, tf.repeat(tf.reshape(parents, [-1]), count))  # [n]
        token_ids = tf.gather(sequences.token_ids, best, batch_dims=1)  # [B, 1, S]
        chosen = tf.gather(token_ids, position, axis=2)[:, 0]  # [B]
        vector = tf.gather(vectors, best, batch_dims=1)  # [B, 1, H]
        is_here = tf.range(token_ids.shape[2])[:, tf.newaxis] == position  # [S, 1]
        stop_states = self.stops.advance(sequences.stop_states, chosen)
        sequences = sequences._replace(
            token_ids=tf.repeat(token_ids, count, axis=1),
            vectors=tf.where(is_here, vector, sequences.vectors),
            stop_states=stop_states,
            is_finished=sequences.is_finished | self.ends(chosen, stop_states),
        )
        logits = tf.gather(logits, best, batch_dims=1)[:, 0]  # [B, K, V] -> [B, V]
        return self._with_candidates(position, sequences, logits), state
