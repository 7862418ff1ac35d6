"""Windows over tokens, key sentences, and where the tokenizer cuts."""

import random
import re

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import BertTokenizer
from bert_tf.errors import ConfigError, UserError
from bert_tf.inputs.long_texts import (
    key_sentences,
    split_sentences,
    split_sentences_in_graph,
    token_windows,
)


@pytest.mark.parametrize(("size", "stride"), [(4, 4), (4, 3), (5, 1), (40, 7)])
def test_windows(size, stride):
    lengths = [0, 1, size - 1, size, size + 1, 3 * size, 23]
    rows = [list(range(100 * i, 100 * i + n)) for i, n in enumerate(lengths)]
    windows, texts = token_windows(tf.ragged.constant(rows, tf.int32), size, stride)
    windows, texts = windows.to_list(), texts.numpy().tolist()
    assert texts == sorted(texts) and set(texts) == set(range(len(rows)))
    for number, row in enumerate(rows):
        own = [window for window, text in zip(windows, texts) if text == number]
        if len(row) <= size:
            assert own == [row]
            continue
        starts = [row.index(window[0]) for window in own]
        assert own == [row[start : start + size] for start in starts]
        assert starts[:-1] == [stride * k for k in range(len(own) - 1)]
        assert own[-1][-1] == row[-1] and 0 < starts[-1] - starts[-2] <= stride


def test_where_the_tokenizer_cuts(tiny_vocabulary, tmp_path):
    text = " ".join("abcdefghijklmnopqrstuvwxyz")
    kept = {"right": "abcdefgh", "left": "stuvwxyz", "middle": "abuvwxyz"}  # (8 + 2) // 4 = 2
    for side, letters in kept.items():
        tokenizer = BertTokenizer(tiny_vocabulary, truncation_side=side, max_length=10)
        tokenizer.save_pretrained(tmp_path / side)
        for same in (tokenizer, BertTokenizer.from_pretrained(tmp_path / side)):
            ids = same([text, "a b", ""])["token_ids"]
            words = [row.decode() for row in same.detokenize(ids).numpy()]
            assert words == [" ".join(letters), "a b", ""]
        pair = tokenizer([text], ["a b c"], max_length=12)["token_ids"][0]
        halves = tokenizer.detokenize(pair, skip_special_tokens=False).numpy().decode()
        first = {"right": "a b c d e f", "left": "u v w x y z", "middle": "a b w x y z"}[side]
        assert halves == f"[CLS] {first} [SEP] a b c [SEP]"
    with pytest.raises(ConfigError, match="truncation_side"):
        BertTokenizer(tiny_vocabulary, truncation_side="both")


def test_middle_keeps_128_and_382_of_510(tiny_vocabulary):
    tokenizer = BertTokenizer(tiny_vocabulary, truncation_side="middle")
    ids = tokenizer(" ".join(["a"] * 128 + ["x"] * 900 + ["b"] * 382), max_length=512)["token_ids"]
    assert tiny_vocabulary.index("x") not in ids.numpy()


def test_sentences():
    text = 'One. "Two!" Three?\nFour 3.5 five… 六。七！“八。”九'
    assert split_sentences(text) == [
        "One.",
        '"Two!"',
        "Three?",
        "Four 3.5 five…",
        "六。",
        "七！",
        "“八。”",
        "九",
    ]
    assert split_sentences(" \n ") == []


def test_sentences_of_any_texts_in_the_graph():
    generator = random.Random(5)
    characters = list("ab.!?\"')]”’。！？；…」』）\n\r\t \u3000\xa0\x85\u2028\x1f猫é")
    texts = [
        "".join(generator.choices(characters, k=generator.randint(0, 12))) for _ in range(3000)
    ]
    # After a mark and what closes the sentence.
    end = re.compile(r"(?<=[.!?])[\"'”’)\]]*\s+|(?<=[。！？；…])[”’」』）]*\s*|\s*\n\s*")
    received = split_sentences_in_graph(tf.constant(texts)).to_list()
    for text, sentences in zip(texts, received):
        borders = [0, *(match.end() for match in end.finditer(text)), len(text)]
        parts = [text[start:stop].strip() for start, stop in zip(borders, borders[1:])]
        expected = [part for part in parts if part]
        assert split_sentences(text) == expected, repr(text)
        assert [sentence.decode() for sentence in sentences] == expected, repr(text)


@pytest.mark.parametrize("method", ["textrank", "tfidf"])
def test_key_sentences(minilm, method):
    tokenizer = BertTokenizer.from_pretrained(minilm)
    story = [
        "The storm reached the coast on Monday.",
        "The storm broke trees along the coast.",
        "My aunt likes tea.",
        "Trees fell on roads along the coast.",
        "The storm cut power to the coast towns.",
    ]
    text = " ".join(story)
    short, same = key_sentences([text, "Short."], tokenizer, 36, method)
    assert same == "Short."
    assert len(tokenizer([short])["token_ids"][0]) <= 36
    kept = split_sentences(short)
    assert len(kept) >= 3 and kept == [sentence for sentence in story if sentence in kept]
    if method == "textrank":  # like no other sentence
        assert "My aunt likes tea." not in kept
    assert key_sentences([text], tokenizer, 3, method)[0] in story
    with pytest.raises(UserError, match="method"):
        key_sentences([text], tokenizer, 36, "best")


def test_textrank_is_the_stationary_distribution():
    from bert_tf.inputs.long_texts import TEXTRANK_DAMPING, _textrank

    weights = np.random.default_rng(0).random([6, 9])
    units = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    step = units @ units.T - np.eye(6)
    step /= step.sum(axis=1, keepdims=True)
    matrix = np.eye(6) - TEXTRANK_DAMPING * step.T
    expected = np.linalg.solve(matrix, np.full(6, (1 - TEXTRANK_DAMPING) / 6))
    np.testing.assert_allclose(_textrank(weights), expected, atol=1e-6)
