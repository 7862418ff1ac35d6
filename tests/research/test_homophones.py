"""Misheard sentences: which words are exchanged, and the shares that are reported."""

import random
import sys
import types

import pytest

from research.homophones import homophones, mishear, shares

SOUNDS = {
    "他": "ta",
    "她": "ta",
    "塔": "ta",
    "在": "zai",
    "再": "zai",
    "来": "lai",
    "O": "o",
    "K": "k",
}
COUNTS = {"他": 90, "她": 80, "塔": 1, "在": 70, "再": 20, "来": 50, "OK": 99}


@pytest.fixture(autouse=True)
def pypinyin(monkeypatch):
    def lazy_pinyin(word):
        return [SOUNDS[c] for c in word] if set(word) <= SOUNDS.keys() else [word]

    module = types.SimpleNamespace(lazy_pinyin=lazy_pinyin)
    monkeypatch.setitem(sys.modules, "pypinyin", module)


def test_frequent_words_of_the_same_sound_are_exchanged():
    by_sound = homophones(COUNTS, 20)
    assert by_sound[("zai",)] == ["在", "再"] and by_sound[("ta",)] == ["他", "她"]
    assert ("o", "k") not in by_sound
    generator = random.Random(0)
    assert mishear(["他", "在", "来"], by_sound, COUNTS, generator) == ["他", "再", "来"]
    # Pronouns are not exchanged with each other, and nothing sounds like 来.
    assert mishear(["他", "来"], by_sound, COUNTS, generator) is None
    # Letters do not sound like an ideograph, although its pronunciation is written with them.
    assert mishear(["ta", "来"], by_sound, COUNTS, generator) is None
    rare = homophones(COUNTS, 1)
    assert mishear(["他", "来"], rare, COUNTS, generator) == ["塔", "来"]


def test_shares():
    rows = [
        ("a", "b", 1.0, 2.0),
        ("a", "b", 0.5, -1.0),
        ("a", "b", -1.0, 1.0),
        ("a", "b", 0.0, 0.0),
    ]
    assert shares(rows) == {
        "bert": 0.5,
        "trigrams": 0.5,
        "bert_alone": 0.25,
        "trigrams_alone": 0.25,
    }
