"""Character properties and mappings of one fixed Unicode version, as small lookup tables.

Every rule of google-research/bert's `tokenization.py`, except for the final sigma and the order of
combining marks, is a function of single code points. Their results are combined into one int32
entry per code point, so that one lookup in the graph replaces a loop of the original.

Layout of an entry: the low `PAYLOAD_SHIFT` bits are the flags below, the others a signed payload:
what to add to the code point to get its normalized form or, if `EXPANDS` is set, the position of
its expansion in `CharacterTable.expansions`.
"""

import dataclasses
import functools
import pathlib
import unicodedata
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

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

NUM_CODE_POINTS = 0x110000
PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS

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

HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


@dataclasses.dataclass(frozen=True)
class UnicodeData:
    """The content of `unicode_data.txt`; the dictionaries hold the code points that change."""

    version: str
    properties: dict[str, np.ndarray]  # bool
    combining_class: np.ndarray  # the canonical combining class, int32
    lower: dict[int, tuple[int, ...]]  # the lower-case form
    decomposition: dict[int, tuple[int, ...]]  # the canonical decomposition (NFD)


class CodePointTable:
    """A value for each code point, int32, in a two-level table; repeated pages are stored once.

    Args:
        values: `[NUM_CODE_POINTS]`.
    """

    def __init__(self, values: np.ndarray):
        blocks = np.ascontiguousarray(values, np.int32).reshape(-1, PAGE_SIZE)
        distinct: dict[bytes, int] = {}
        pages = [distinct.setdefault(block.tobytes(), len(distinct)) for block in blocks]
        self._pages = np.array(pages, np.int32)
        self._values = np.frombuffer(b"".join(distinct), np.int32)

    def __call__(self, code_points: tf.Tensor) -> tf.Tensor:
        """Returns the values of int32 code points."""
        numbers = tf.bitwise.right_shift(code_points, PAGE_BITS)
        places = tf.gather(tf.constant(self._pages), numbers) * PAGE_SIZE
        places += tf.bitwise.bitwise_and(code_points, PAGE_SIZE - 1)
        return tf.gather(tf.constant(self._values), places)


@dataclasses.dataclass(frozen=True)
class CharacterTable:
    """Tables for one kind of normalization.

    Args:
        entries: Flags and payload.
        combining_classes: The canonical combining class.
        expansions: The concatenated expansions, int32.
        expansion_lengths: int64 in the shape of `expansions`: at the first position of each
            expansion its length, elsewhere 0.
    """

    entries: CodePointTable
    combining_classes: CodePointTable
    expansions: np.ndarray
    expansion_lengths: np.ndarray


def read_data(name: str, mappings: Sequence[str]) -> tuple[str, dict, dict]:
    """Reads a file of the package with lines of kind, first, last and values.

    Returns:
        Its first line; kinds -> a value for each code point, int32 or, where lines have none, bool
        `[NUM_CODE_POINTS]`; and the `mappings`, kinds -> code points -> tuples of code points.
    """
    found: dict[str, dict] = {kind: {} for kind in mappings}
    properties: dict[str, np.ndarray] = {}
    content = pathlib.Path(__file__).with_name(name).read_text(encoding="ascii")
    header, _, *lines = content.splitlines()
    for line in lines:
        kind, first, last, *values = line.split("\t")
        numbers = [int(value, 16) for text in values for value in text.split()]
        if kind in found:
            found[kind][int(first, 16)] = tuple(numbers)
        else:
            if kind not in properties:
                properties[kind] = np.zeros(NUM_CODE_POINTS, np.int32 if numbers else bool)
            properties[kind][int(first, 16) : int(last, 16) + 1] = numbers[0] if numbers else True
    return header, properties, found


@functools.cache
def unicode_data() -> UnicodeData:
    """Reads the Unicode data of the package, once."""
    header, properties, mappings = read_data("unicode_data.txt", ("lower", "nfd"))
    combining = properties.pop("combining")
    for syllable in HANGUL_SYLLABLES:  # their decomposition is the same in every Unicode version
        mappings["nfd"][syllable] = tuple(map(ord, unicodedata.normalize("NFD", chr(syllable))))
    version = header.removeprefix("# Unicode ")
    return UnicodeData(version, properties, combining, mappings["lower"], mappings["nfd"])


@functools.cache
def hugging_face_data() -> tuple[dict[str, np.ndarray], dict[str, dict[str, str]]]:
    """Returns the properties (bool) and mappings of `hugging_face_data.txt`."""
    _, properties, found = read_data("hugging_face_data.txt", ("lower", "unaccented"))
    syllables = unicode_data().decomposition
    found["unaccented"] |= {syllable: syllables[syllable] for syllable in HANGUL_SYLLABLES}
    mappings = {
        kind: {chr(char): "".join(map(chr, to)) for char, to in mapping.items()}
        for kind, mapping in found.items()
    }
    return properties, mappings


@functools.cache
def character_table(
    lowercase: bool, decompose: bool, strip_marks: bool, split_on_cjk: bool
) -> CharacterTable:
    """Builds the table for one kind of normalization, once.

    Args:
        lowercase, decompose: Whether the normalized form is lower case, and decomposed (NFD).
        strip_marks: Whether marks (category Mn) are removed after that.
        split_on_cjk: Whether CJK ideographs are marked as separate words.
    """
    data = unicode_data()
    properties = data.properties

    def normalize(code_point: int) -> tuple[int, ...]:
        result = data.lower.get(code_point, (code_point,)) if lowercase else (code_point,)
        if decompose:
            result = tuple(d for c in result for d in data.decomposition.get(c, (c,)))
        if strip_marks:
            result = tuple(c for c in result if not properties["mark"][c])
        return result

    flags = KEPT * ~(properties["control"] | properties["space"])
    flags = flags + sum(flag * properties[name] for name, flag in _FLAGS.items())
    if decompose:
        flags += REORDERS * ((data.combining_class > 0) & ~properties["mark"])
    if split_on_cjk:
        for first, last in CJK_BLOCKS:
            flags[first : last + 1] += CJK
    payload = np.zeros(NUM_CODE_POINTS, np.int32)
    expansions: list[int] = []
    lengths: list[int] = []
    changed = set(data.lower if lowercase else ()) | set(data.decomposition if decompose else ())
    if strip_marks:
        flags[properties["mark"]] &= ~KEPT
    for code_point in sorted(changed):
        result = normalize(code_point)
        if decompose and any(data.combining_class[c] and not properties["mark"][c] for c in result):
            flags[code_point] |= REORDERS
        if not result:
            flags[code_point] &= ~KEPT
        elif len(result) == 1:
            payload[code_point] = result[0] - code_point
            punctuation = PUNCTUATION * properties["punctuation"][result[0]]
            flags[code_point] = flags[code_point] & ~PUNCTUATION | punctuation
        else:
            flags[code_point] |= EXPANDS
            payload[code_point] = len(expansions)
            expansions.extend(result)
            lengths.extend([len(result)] + [0] * (len(result) - 1))
    entries = (payload << PAYLOAD_SHIFT) | flags.astype(np.int32)
    return CharacterTable(
        entries=CodePointTable(entries),
        combining_classes=CodePointTable(data.combining_class),
        # One zero at the end: no array is empty, so a gather of position 0 is always valid.
        expansions=np.array(expansions + [0], np.int32),
        expansion_lengths=np.array(lengths + [0], np.int64),
    )
