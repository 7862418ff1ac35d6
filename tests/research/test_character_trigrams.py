"""Kneser-Ney: probabilities of a toy, their sum, and unseen characters."""

import math

import pytest

from research.character_trigrams import CharacterTrigrams


def test_probabilities_of_a_toy():
    """The numbers are the formula's; ^ begins and $ ends a sentence.

    The trigrams of "ab", "ab" and "b" are ^^a 2, ^ab 2, ab$ 2, ^^b 1, ^b$ 1. Of bigrams, b$ has 2
    characters before it and ^a, ab and ^b have 1; of characters, b has 2, $ and a have 1.
    """
    trigrams = CharacterTrigrams(["ab", "ab", "b"], discount=0.5, vocabulary_size=4)
    a = (1 - 0.5 + 0.5 * 3 / 4) / 4
    b = (2 - 0.5 + 0.5 * 3 / 4) / 4
    end = (1 - 0.5 + 0.5 * 3 / 4) / 4
    a_of_begin = (1 - 0.5 + 0.5 * 2 * a) / 2
    b_of_a = (1 - 0.5 + 0.5 * b) / 1
    end_of_b = (2 - 0.5 + 0.5 * end) / 2
    expected = [
        (2 - 0.5 + 0.5 * 2 * a_of_begin) / 3,
        (2 - 0.5 + 0.5 * b_of_a) / 2,
        (2 - 0.5 + 0.5 * end_of_b) / 2,
    ]
    assert trigrams.score("ab") == pytest.approx(math.log(math.prod(expected)))


def test_probabilities_sum_to_one():
    texts = ["他来了", "他不来", "她来了吗", "不"]
    trigrams = CharacterTrigrams(texts)
    characters = {*"".join(texts), "\x03"}
    for context in ("他来", "\x02他", "\x02\x02", "了了", "x来", "xy"):
        total = sum(trigrams._probability(context + character) for character in characters)
        unseen = trigrams._probability(context + "x")
        assert total + unseen == pytest.approx(1)
        assert unseen > 0


def test_seen_orders_are_more_probable():
    trigrams = CharacterTrigrams(["房间很大", "房间不大", "很大的房间"])
    assert trigrams.score("房间很大") > trigrams.score("间房很大")
