"""The automaton of stop strings against Python's `in` on the text of the tokens."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import UserError
from bert_tf.generation.stop_strings import StopAutomaton
from tests.generation.numpy_generation import added_text
from tests.generation.table_model import VOCABULARY

STRINGS = ["a", " a", "ab ", "abab", "ababc", "aab", "caa b", "b . c", "c", "K"]


@pytest.fixture(scope="module")
def tokenizer():
    return BertTokenizer(VOCABULARY, lowercase=False)


def first_found(automaton, token_ids):
    """The number of tokens after which each row has a stop string, and one more if none has."""
    states = automaton.start(tf.zeros(len(token_ids)))
    found = [automaton.is_found(states)]
    for column in np.array(token_ids, np.int32).T:
        states = automaton.advance(states, column)
        found.append(automaton.is_found(states))
    found = np.append(np.stack(found, axis=1), np.ones([len(token_ids), 1], bool), axis=1)
    assert (np.diff(found.astype(int), axis=1) >= 0).all()  # what is found stays found
    return found.argmax(axis=1)


def expected(strings, texts):
    """The same for the texts of the tokens."""
    for count in range(len(texts) + 1):
        if any(string in "".join(texts[:count]) for string in strings):
            return count
    return len(texts) + 1


def test_every_way_to_split_a_string(tokenizer):
    token_ids = np.random.default_rng(0).integers(0, len(VOCABULARY), [500, 12])
    texts = [[added_text(VOCABULARY[token_id]) for token_id in row] for row in token_ids]
    for strings in (*[[string] for string in STRINGS], STRINGS[3:5], STRINGS[5:]):
        automaton = StopAutomaton.of(tuple(strings), tokenizer, len(VOCABULARY) + 3)
        found = first_found(automaton, token_ids)
        np.testing.assert_array_equal(found, [expected(strings, row) for row in texts])
        assert len(set(found)) > 1


def test_ids_without_a_piece_change_nothing(tokenizer):
    automaton = StopAutomaton.of(("ab",), tokenizer, len(VOCABULARY) + 3)
    rows = [[5, 26, 11], [5, 2, 11], [5, 26, 5]]  # a, nothing, ##b
    np.testing.assert_array_equal(first_found(automaton, rows), [3, 3, 4])


def test_few_columns(tokenizer):
    """Tokens with the same effects share one."""
    assert StopAutomaton.of(("d",), tokenizer, len(VOCABULARY)).next_states.shape == (2, 2)


def test_strings_are_written_as_texts_are():
    tokenizer = BertTokenizer([piece.lower() if piece[0] != "[" else piece for piece in VOCABULARY])
    for string in ("AB.c", "áb . C", "ab.c"):
        assert tokenizer.as_detokenized(string) == "ab . c"
        automaton = StopAutomaton.of((string,), tokenizer, len(VOCABULARY))
        np.testing.assert_array_equal(first_found(automaton, [[5, 11, 14, 15]]), [4])
    assert tokenizer.as_detokenized(" a  b ") == " a  b "


@pytest.mark.parametrize("string", ["\n", "a\n", "a  b", "z", "d d", "?", "\u200d", "##a", "K]"])
def test_impossible_strings_are_refused(string, tokenizer):
    message = "`stop_strings` must be what the pieces of the vocabulary can write. Received: "
    with pytest.raises(UserError, match=message):
        StopAutomaton.of(("a", string), tokenizer, len(VOCABULARY))


def test_none():
    automaton = StopAutomaton.of(None, None, 7)
    np.testing.assert_array_equal(first_found(automaton, [[0, 6, 2]]), [4])
