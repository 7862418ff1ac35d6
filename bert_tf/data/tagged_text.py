"""Files of tagged words: CoNLL columns, and word/tag text.

Both readers are strict: a word without a tag, or a line that lacks a column, is an error with file
and line, for a tag that slips by one word would train silently.
"""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_tf.data.tsv import read_lines
from bert_tf.errors import DataError, UserError

FORMATS = ("conll", "word_tag")
_DOCUMENT = "-DOCSTART-"  # CoNLL 2003: the line between documents


class TaggedSentence(NamedTuple):
    """A sentence.

    Attributes:
        words: Its words.
        tags: A tag a word, or None where the file has none.
    """

    words: list[str]
    tags: list[str] | None


def read_tagged_text(path: str | os.PathLike, format: str = "conll", **columns):
    """Reads a file in one of `FORMATS`; see `read_conll` and `read_word_tag`."""
    if format not in FORMATS:
        raise UserError(f"`format` must be one of {FORMATS}. Received: format={format!r}")
    return read_conll(path, **columns) if format == "conll" else read_word_tag(path)


def read_conll(
    path: str | os.PathLike, word_column: int = 0, tag_column: int | None = -1
) -> list[TaggedSentence]:
    """Reads a word a line, columns separated by tabs or blanks, an empty line after a sentence.

    Args:
        path: The file, UTF-8. `-DOCSTART-` lines are left out.
        word_column: Where the words stand, from 0; negative counts from the last column.
        tag_column: Where the tags stand; None for a file whose tags are not wanted. A file with
            words alone has no tags either.

    Raises:
        DataError: If the file is missing or empty, is not UTF-8, or a line has not the columns of
            the line before it; with file and line.

    Example:
        >>> read_conll("eng.train")[0]
        TaggedSentence(words=['U.N.', 'official'], tags=['I-ORG', 'O'])

    Reference: Tjong Kim Sang and De Meulder 2003, CoNLL-2003.
    """
    sentences, words, tags = [], [], []
    width = None
    for number, line in read_lines(path):
        fields = _fields(line)
        if not fields or fields[0] == _DOCUMENT:
            if words:
                sentences.append(TaggedSentence(words, tags))
                words, tags = [], []
            continue
        if width is None:
            width = len(fields)
            if width == 1:
                tag_column = None
            _check_columns(path, number, width, word_column, tag_column)
        if len(fields) != width or not all(fields):
            raise DataError(
                f"{path}, line {number}: expected {width} columns, as in the lines before. "
                f"Received: {line!r}. Every word needs its tag; an empty line ends a sentence."
            )
        words.append(fields[word_column])
        if tag_column is not None:
            tags.append(fields[tag_column])
    if words:
        sentences.append(TaggedSentence(words, tags))
    if not sentences:
        raise DataError(f"{path} holds no sentences. Expected a word and its tag a line")
    if tag_column is None:
        return [TaggedSentence(sentence.words, None) for sentence in sentences]
    return sentences


def read_word_tag(path: str | os.PathLike) -> list[TaggedSentence]:
    """Reads a sentence a line, its words with their tags behind a slash, separated by blanks.

    The last slash separates, so that a word may hold one. The format of the People's Daily corpus.

    Raises:
        DataError: If the file is missing or empty, is not UTF-8, or a word lacks its tag; with file
            and line.

    Example:
        >>> read_word_tag("199801.txt")[1].words
        ['中共中央', '总书记', '、', '国家', '主席', '江', '泽民']
    """
    sentences = []
    for number, line in read_lines(path):
        sentence = TaggedSentence([], [])
        for place, field in enumerate(_fields(line), start=1):
            word, _, tag = field.rpartition("/")
            if not word or not tag:
                raise DataError(
                    f"{path}, line {number}, word {place}: expected word/tag. Received: {field!r}"
                )
            sentence.words.append(word)
            sentence.tags.append(tag)
        if sentence.words:
            sentences.append(sentence)
    if not sentences:
        raise DataError(f"{path} holds no sentences. Expected word/tag word/tag … a line")
    return sentences


def conll_lines(sentences: Iterable[Sequence[Sequence[str]]]) -> Iterable[str]:
    """The lines of a CoNLL file.

    Args:
        sentences: The columns of each sentence, as many as the file shall have: `(words, tags)`,
            or `(words, gold tags, predicted tags)`, which conlleval.pl reads.
    """
    for columns in sentences:
        yield from (" ".join(fields) + "\n" for fields in zip(*columns, strict=True))
        yield "\n"


def _fields(line: str) -> list[str]:
    """Tabs separate where there are any, so that an empty column shows; else runs of blanks.

    Only ASCII white space: an ideographic space can be a word.
    """
    if "\t" in line:
        return line.split("\t") if line.strip(" \t") else []
    return [field for field in line.split(" ") if field]


def _check_columns(path, number, width, word_column, tag_column):
    for name, column in (("word_column", word_column), ("tag_column", tag_column)):
        if column is not None and not -width <= column < width:
            raise DataError(
                f"{path}, line {number}: expected a column {column} ({name}). Received: {width} "
                "columns"
            )
