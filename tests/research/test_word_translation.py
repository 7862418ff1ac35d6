"""IBM model 1: a toy table, and texts that are split and joined."""

from research.word_translation import NULL, learn_table, translate, words_of

SOURCES = ["the house", "the book", "a book", "the big house"]
TARGETS = ["das Haus", "das Buch", "ein Buch", "das große Haus"]


def test_the_table_of_a_toy():
    table = learn_table(SOURCES, TARGETS, iterations=20)
    assert {word: table[word] for word in ("the", "house", "book", "a", "big")} == {
        "the": "das",
        "house": "Haus",
        "book": "Buch",
        "a": "ein",
        "big": "große",
    }
    assert translate("a big house, unknown.", table) == "ein große Haus, unknown."
    assert set(table) == {NULL, "the", "house", "book", "a", "big"}


def test_later_words_are_not_read():
    assert set(learn_table(["a b c"], ["x y z"], max_words=2)) == {NULL, "a", "b"}


def test_ideographs_are_words():
    assert words_of("the king's son, 王子") == ["the", "king's", "son", ",", "王", "子"]
    assert translate("big house (1).", {"big": "大", "house": "家", ".": "。"}) == "大家 (1)。"
