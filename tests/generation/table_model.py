"""A model of the next token whose logits depend on all tokens before, equal in every library."""

import numpy as np
import tensorflow as tf

VOCAB_SIZE = 24
END, PAD = 1, 2
VOCABULARY = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]", "a", "b", "ab", "ba", "bab", "##a"]
VOCABULARY += ["##b", "##ab", "##aba", ".", "c", "##c", "##bc", "abc", "caa", "##aab", "cab"]
VOCABULARY += ["##ef", "##d"]
_STATES = 9973  # so many that sequences hardly ever meet in a state and become equally probable
_FACTOR = 31


class TableModel:
    """Every sequence of tokens leads to a state, and a row of a table has the logits of a state.

    The table holds random numbers, so no two sequences are equally probable.

    Args:
        seed: The seed of the table.
        end_logit: Is added to the logits of the end token: the higher, the shorter the sequences.
        allowed: The ids of the tokens that are possible. None means all.
    """

    def __init__(self, seed=0, end_logit=1.0, vocab_size=VOCAB_SIZE, allowed=None):
        table = 2 * np.random.default_rng(seed).standard_normal((_STATES, vocab_size))
        table[:, END] += end_logit
        if allowed is not None:
            is_forbidden = np.isin(np.arange(vocab_size), allowed, invert=True)
            table[:, is_forbidden] = -np.inf
        self.table = table.astype(np.float32)
        self.vocab_size = vocab_size

    def step(self, token_ids, position, states, memory):
        """The protocol of `generate`; states int32 `[n]`."""
        states = self.next_states(token_ids, states)
        return tf.gather(self.table, states), states

    @staticmethod
    def next_states(token_ids, states):
        """Of integers, and of arrays of any library."""
        return (states * _FACTOR + token_ids + 7) % _STATES

    def logits(self, token_ids, start_state):
        """The logits after a sequence with its start token, `[V]`."""
        state = start_state
        for token_id in token_ids:
            state = self.next_states(token_id, state)
        return self.table[state]
