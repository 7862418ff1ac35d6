"""A plain Python tokenizer with the published behaviour of google-research/bert.

Written from the description of the algorithm (README "Tokenization" of google-research/bert and
the paper), character by character and without this package's tables, to test against. It asks
Python's own `unicodedata`, so on a Python whose Unicode version differs from the package's the
tests leave out the code points that changed (`changed_code_points`).
"""

import functools
import unicodedata

from bert_tf.text import unicode_tables

CJK_BLOCKS = [
    range(0x4E00, 0xA000),
    range(0x3400, 0x4DC0),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B740),
    range(0x2B740, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0xF900, 0xFB00),
    range(0x2F800, 0x2FA20),
]


def is_cjk(char):
    return any(ord(char) in block for block in CJK_BLOCKS)


def is_control(char):
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char):
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char)[0] == "P"


class Characters(dict):
    """What `str.translate` makes of each character: what `rule` says, which is asked once."""

    def __init__(self, rule):
        self._rule = rule

    def __missing__(self, code_point):
        return self.setdefault(code_point, self._rule(chr(code_point)))


def cleaned(char, split_on_cjk):
    if char in "\0\ufffd" or is_control(char):
        return ""
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    return f" {char} " if split_on_cjk and is_cjk(char) else char


CLEANED = {
    split: Characters(functools.partial(cleaned, split_on_cjk=split)) for split in (False, True)
}
WITHOUT_MARKS = Characters(lambda char: "" if unicodedata.category(char) == "Mn" else char)
PUNCTUATION_APART = Characters(lambda char: f" {char} " if is_punctuation(char) else char)


def basic_tokens(text, lowercase=True, strip_accents=None, split_on_cjk=True):
    """Text to words: clean, space ideographs, split, fold case and accents, cut punctuation."""
    strip_accents = lowercase if strip_accents is None else strip_accents
    words = text.translate(CLEANED[split_on_cjk]).split()
    if lowercase:
        words = [word.lower() for word in words]
    if strip_accents:
        words = [unicodedata.normalize("NFD", word).translate(WITHOUT_MARKS) for word in words]
    return [token for word in words for token in word.translate(PUNCTUATION_APART).split()]


def word_pieces(word, vocabulary, unk_token="[UNK]", max_input_chars_per_word=200):
    """Longest piece first, from the left; one unknown part makes the whole word unknown."""
    if len(word) > max_input_chars_per_word:
        return [unk_token]
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                pieces.append(piece)
                start = end
                break
        else:
            return [unk_token]
    return pieces


@functools.cache
def changed_code_points():
    """The code points that this Python's Unicode version treats otherwise than the package's.

    Empty where both have the same version. The test that fuzzes prints them.
    """
    data = unicode_tables.unicode_data()
    if data.version == unicodedata.unidata_version:
        return frozenset()
    changed = set()
    for code_point in range(0x110000):
        if 0xD800 <= code_point < 0xE000:
            continue
        char = chr(code_point)
        same = (
            data.properties["punctuation"][code_point] == is_punctuation(char)
            and data.properties["mark"][code_point] == (unicodedata.category(char) == "Mn")
            and data.properties["control"][code_point] == (char in "\0\ufffd" or is_control(char))
            and data.properties["combining"][code_point] == unicodedata.combining(char)
            and data.mappings["lower"].get(char, char) == char.lower()
            and data.mappings["nfd"].get(char, char) == unicodedata.normalize("NFD", char)
            and data.properties["cased"][code_point]
            == ((char + "\u03a3").lower().endswith("\u03c2"))
            and (data.properties["cased"][code_point] or data.properties["ignorable"][code_point])
            == ("A" + char + "\u03a3").lower().endswith("\u03c2")
        )
        if not same:
            changed.add(char)
    return frozenset(changed)
