"""Finds stop strings in generated text, in the graph, however they are split into tokens.

The automaton of Knuth, Morris and Pratt reads the bytes of a text: its state is the number of bytes
of a stop string that the text ends with. The effect of a token on each state is computed once, so
one lookup per token is exact. Tokens with the same effects are one class, since the vocabulary has
thousands of tokens and few that hold a part of a stop string.

Glossary: `C` classes of tokens, `W` stop strings, `V` vocabulary.
"""

import functools
import re
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.text.tokenizer_base import Tokenizer

_OTHER = b"\xff"  # a byte of no text in UTF-8: it is what all bytes become that no stop string has


class StopAutomaton(NamedTuple):
    """The automata of some stop strings, whose states are numbered one after the other.

    Attributes:
        next_states: The state after each state and a token of each class, int32 `[states, C]`.
        classes: The class of each token, int32 `[V]`.
        first: The state of each string before the first token, int32 `[W]`.
        found: The state of each string from where it is found on, int32 `[W]`.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> automaton = StopAutomaton.of(("od f",), tokenizer, tokenizer.vocab_size)
        >>> states = automaton.start(tf.zeros([1]))
        >>> for token_id in tokenizer.tokenize("good film"):
        ...     states = automaton.advance(states, [token_id])
        >>> automaton.is_found(states).numpy()
        array([ True])
    """

    next_states: np.ndarray
    classes: np.ndarray
    first: np.ndarray
    found: np.ndarray

    @classmethod
    def of(
        cls, strings: tuple[str, ...] | None, tokenizer: Tokenizer | None, vocab_size: int
    ) -> "StopAutomaton":
        """Makes the automata of strings; None makes one that finds nothing.

        Raises:
            UserError: If there is no tokenizer, or no tokens have a string in their text.
        """
        if strings is None:
            # One automaton that stays in its only state.
            stays, classes = np.zeros([1, 1], np.int32), np.zeros([vocab_size], np.int32)
            return cls(stays, classes, first=np.array([0], np.int32), found=np.array([1], np.int32))
        rule = "must be given with `stop_strings`"
        require(tokenizer is not None, rule, UserError, tokenizer=None)
        with tf.init_scope():
            return _automaton(tuple(strings), tokenizer, vocab_size)

    def start(self, sequences: tf.Tensor) -> tf.Tensor:
        """Returns the states before the first tokens of `sequences`, `[...]`: int32 `[..., W]`."""
        shape = tf.concat([tf.shape(sequences), self.first.shape], axis=0)
        states = tf.broadcast_to(self.first, shape)
        return tf.ensure_shape(states, [*sequences.shape, len(self.first)])

    def advance(self, states: tf.Tensor, token_ids: tf.Tensor) -> tf.Tensor:
        """Returns the states `[..., W]` after one more token, int32 `[...]`."""
        classes = tf.gather(self.classes, token_ids)[..., tf.newaxis]  # [..., 1]
        places = states * self.next_states.shape[1] + classes
        return tf.gather(self.next_states.ravel(), places)

    def is_found(self, states: tf.Tensor) -> tf.Tensor:
        """Returns whether a string is found, bool `[...]`, by states `[..., W]`."""
        return tf.reduce_any(states == self.found, axis=-1)


@functools.lru_cache(maxsize=8)
def _automaton(strings, tokenizer, vocab_size):
    written = [tokenizer.as_detokenized(string).encode() for string in strings]
    alphabet = set(b"".join(written))
    kept = bytes(byte if byte in alphabet else _OTHER[0] for byte in range(256))
    # Only the kept bytes have an effect, and the first of several others, so few texts differ.
    texts = [re.sub(_OTHER + b"+", _OTHER, text.translate(kept)) for text in _texts(tokenizer)]
    texts += [b""] * (vocab_size - len(texts))
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    parts, first = [], [0]
    for string, text in zip(strings, written, strict=True):
        part = _next_states(text, numbers)
        if not text or not _is_reachable(part):
            expected = "be what the pieces of the vocabulary can write"
            raise user_error("`stop_strings`", expected, repr(string))
        parts.append(part + first[-1])
        first.append(first[-1] + len(part))
    next_states, of_text = np.unique(np.concatenate(parts), axis=1, return_inverse=True)
    classes = of_text.ravel()[[numbers[text] for text in texts]].astype(np.int32)
    first = np.array(first, np.int32)
    return StopAutomaton(next_states, classes, first[:-1], first[1:] - 1)


def _texts(tokenizer):
    """Returns what each piece adds to a text, UTF-8 `[V]`; special tokens add nothing."""
    ids = tf.range(tokenizer.vocab_size)[:, tf.newaxis]
    once = tokenizer.detokenize(ids).numpy()
    twice = tokenizer.detokenize(tf.tile(ids, [1, 2])).numpy()
    return [text[len(other) :] for text, other in zip(twice, once, strict=True)]


def _next_states(string, texts):
    """Returns the state after each state and each of the texts, int32 `[len(string) + 1, C]`."""
    length = len(string)
    by_byte = np.zeros([256, length + 1], np.int32)
    by_byte[:, length] = length  # what is found stays found
    shorter = 0  # the state after the bytes before, without the first one
    for state, byte in enumerate(string):
        by_byte[:, state] = by_byte[:, shorter] if state else 0
        by_byte[byte, state] = state + 1
        if state:
            shorter = by_byte[byte, shorter]
    columns = []
    for text in texts:
        states = np.arange(length + 1)
        for byte in text:
            states = by_byte[byte, states]
        columns.append(states)
    return np.stack(columns, axis=1).astype(np.int32)


def _is_reachable(next_states):
    """Returns whether tokens lead from the first state to the last."""
    reached, fresh = {0}, {0}
    while fresh:
        fresh = set(np.unique(next_states[sorted(fresh)]).tolist()) - reached
        reached |= fresh
    return len(next_states) - 1 in reached
