"""Character properties and mappings of one fixed Unicode version, as small lookup tables.

Every rule of google-research/bert's `tokenization.py`, except for the final sigma and the order of
combining marks, is a function of single code points. Their results are combined into one int32
entry per code point, so that one lookup in the graph replaces a loop of the original. Hugging
Face's `tokenizers` has the same rules with other characters (`word_data`).

Layout of an entry: the low `PAYLOAD_SHIFT` bits are the flags below, the others a signed payload:
what to add to the code point to get its normalized form or, if `EXPANDS` is set, its rule in
`CharacterTable.expansions`.
"""

import dataclasses
import functools
import pathlib
import unicodedata

import numpy as np

from bert_tf.text.code_points import NUM_CODE_POINTS, CodePointTable, Replacements

KEPT = 1  # the character is not removed: it is not a space, a control or a removed mark
SPACE = 2
CJK = 4
PUNCTUATION = 8  # of the normalized form: U+1FEF becomes the ASCII punctuation U+0060
EXPANDS = 16  # the normalized form has more than one code point
REORDERS = 32  # a kept mark (category Mc) that NFD may move past its neighbors
CASED = 64
CASE_IGNORABLE = 128
MARK = 256  # category Mn, before normalization
CONTROL = 512  # removed before anything else
PAYLOAD_SHIFT = 10
_NAMES = ("control", "space", "punctuation", "mark", "cased", "ignorable")  # in unicode_data.txt
_FLAGS = dict(zip(_NAMES, (CONTROL, SPACE, PUNCTUATION, MARK, CASED, CASE_IGNORABLE)))

CAPITAL_SIGMA = 0x3A3
FINAL_SIGMA = 0x3C2

# Matches google-research/bert: `_is_chinese_char`, the CJK ideographs without kana and hangul.
CJK_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)

# Thai, Lao, Tibetan, Burmese, Khmer, kana, and ideographs: between their words is no space.
UNSPACED_BLOCKS = (
    (0x0E00, 0x0FFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3041, 0x30FF),
    *CJK_BLOCKS,
)

HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)

GOOGLE, HUGGING_FACE = CHARACTER_RULES = ("google", "huggingface")


def begins_unspaced(text: bytes) -> bool:
    """Returns whether UTF-8, perhaps cut, begins with a character of `UNSPACED_BLOCKS`.

    Of a character that is cut, the first one with the same bytes counts.
    """
    size = sum(text[:1] >= lead for lead in (b"\x00", b"\xc0", b"\xe0", b"\xf0"))
    char = text[:size].ljust(size, b"\x80").decode("utf-8", "ignore")
    return bool(char) and any(a <= ord(char[0]) <= b for a, b in UNSPACED_BLOCKS)


@dataclasses.dataclass(frozen=True)
class UnicodeData:
    """The content of a data file."""

    version: str  # of Unicode, or of what else the first line names
    properties: dict[str, np.ndarray]  # a value for each code point: bool or int32
    mappings: dict[str, dict[str, str]]  # for each kind, the characters that change


@dataclasses.dataclass(frozen=True)
class CharacterTable:
    """Tables for one kind of normalization.

    Args:
        entries: Flags and payload.
        combining_classes: The canonical combining class.
        expansions: What the characters become that become several.
    """

    entries: CodePointTable
    combining_classes: CodePointTable
    expansions: Replacements


@functools.cache
def unicode_data() -> UnicodeData:
    """Returns the properties of characters for google-research/bert."""
    return _read_data("unicode_data.txt", "nfd")


@functools.cache
def hugging_face_data() -> UnicodeData:
    """Returns the properties of characters for Hugging Face's `tokenizers`."""
    return _read_data("hugging_face_data.txt", "unaccented")


def _read_data(name: str, decomposed: str) -> UnicodeData:
    """Reads a file of the package with lines of kind, first, last and values.

    The kinds "lower" and `decomposed` are mappings. The others are properties: int32 or, where
    lines have no values, bool.
    """
    content = pathlib.Path(__file__).with_name(name).read_text(encoding="ascii")
    header, _, *lines = content.splitlines()
    # The decomposition of Hangul syllables is the same in every Unicode version.
    syllables = {char: unicodedata.normalize("NFD", char) for char in map(chr, HANGUL_SYLLABLES)}
    mappings, properties = {"lower": {}, decomposed: syllables}, {}
    for line in lines:
        kind, first, last, *values = line.split("\t")
        numbers = [int(value, 16) for text in values for value in text.split()]
        if kind in mappings:
            mappings[kind][chr(int(first, 16))] = "".join(map(chr, numbers))
        else:
            if kind not in properties:
                properties[kind] = np.zeros(NUM_CODE_POINTS, np.int32 if numbers else bool)
            properties[kind][int(first, 16) : int(last, 16) + 1] = numbers[0] if numbers else True
    return UnicodeData(header.split()[-1], properties, mappings)


def hugging_face_decomposition() -> tuple[dict[str, str], np.ndarray]:
    """Returns the NFD of characters and their combining classes, for Hugging Face's `tokenizers`.

    Its Unicode version is earlier than that of `unicode_data`.
    """
    unassigned = hugging_face_data().properties["unassigned"]
    full = unicode_data().mappings["nfd"]
    rules = {char: to for char, to in full.items() if not unassigned[ord(char)]}
    return rules, np.where(unassigned, 0, unicode_data().properties["combining"])


@functools.cache
def word_data(character_rules: str) -> UnicodeData:
    """Returns the properties of characters by which one of `CHARACTER_RULES` makes words."""
    if character_rules == GOOGLE:
        ideograph = np.zeros(NUM_CODE_POINTS, bool)
        for first, last in CJK_BLOCKS:
            ideograph[first : last + 1] = True
        properties = {**unicode_data().properties, "ideograph": ideograph}
        return dataclasses.replace(unicode_data(), properties=properties)
    data, no = hugging_face_data(), np.zeros(NUM_CODE_POINTS, bool)
    nfd, combining = hugging_face_decomposition()
    # Matches tokenizers, normalizer.rs, `lowercase`: no sigma is final, as if nothing were cased.
    properties = data.properties | {"combining": combining, "cased": no, "ignorable": no}
    return UnicodeData(data.version, properties, {"lower": data.mappings["lower"], "nfd": nfd})


@functools.cache
def character_table(
    lowercase: bool,
    decompose: bool,
    strip_marks: bool,
    split_on_cjk: bool,
    character_rules: str = GOOGLE,
) -> CharacterTable:
    """Builds the table for one kind of normalization, once.

    The normalized form may be lower case, and decomposed (NFD) without marks (category Mn); CJK
    ideographs may be marked as separate words. `character_rules` is one of `CHARACTER_RULES`.
    """
    data = word_data(character_rules)
    properties, mappings = data.properties, data.mappings
    lower = mappings["lower"] if lowercase else {}
    decomposition = mappings["nfd"] if decompose else {}
    # Matches tokenizers, normalizers/bert.rs, which decomposes before it lower-cases.
    in_order = lower, decomposition
    first, second = in_order if character_rules == GOOGLE else in_order[::-1]
    mark, combining = properties["mark"], properties["combining"]
    removed = dict.fromkeys(np.flatnonzero(mark).tolist() if strip_marks else ())
    is_moved = (combining > 0) & ~mark
    moved = {*map(chr, np.flatnonzero(is_moved))} if decompose else set()

    flags = KEPT * ~(properties["control"] | properties["space"])
    flags = flags + sum(flag * properties[name] for name, flag in _FLAGS.items())
    if decompose:
        flags += REORDERS * is_moved
    if split_on_cjk:
        flags += CJK * properties["ideograph"]
    payload = np.zeros(NUM_CODE_POINTS, np.int32)
    expansions: list[str] = []
    if strip_marks:
        flags[mark] &= ~KEPT
    for char in sorted({*lower, *decomposition}):
        code_point = ord(char)
        result = "".join(second.get(c, c) for c in first.get(char, char)).translate(removed)
        if not moved.isdisjoint(result):
            flags[code_point] |= REORDERS
        if not result:
            flags[code_point] &= ~KEPT
        elif len(result) == 1:
            payload[code_point] = ord(result) - code_point
            punctuation = PUNCTUATION * properties["punctuation"][ord(result)]
            flags[code_point] = flags[code_point] & ~PUNCTUATION | punctuation
        else:
            flags[code_point] |= EXPANDS
            expansions.append(result)
            payload[code_point] = len(expansions)
    entries = (payload << PAYLOAD_SHIFT) | flags.astype(np.int32)
    tables = CodePointTable(entries), CodePointTable(combining)
    return CharacterTable(*tables, Replacements(expansions))
