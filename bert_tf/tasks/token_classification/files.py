"""Reads files of tagged words: CoNLL columns and word/tag text.

A word without a tag and a line with a missing column are errors: training on tags that are shifted
by one word would fail silently.
"""

import itertools
import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError, require_one_of
from bert_tf.inputs.tables.tsv import read_lines

TAG_FILE_FORMATS = ("conll", "word_tag")
_DOCUMENT = "-DOCSTART-"  # CoNLL 2003: the line between documents


class TaggedSentence(NamedTuple):
    """A sentence.

    Attributes:
        words, tags: The words, and one tag for each, or None if the file has no tags.

    Example:
        >>> TaggedSentence(["Ada", "wrote"], ["B-PER", "O"]).tags
        ['B-PER', 'O']
    """

    words: list[str]
    tags: list[str] | None


def read_tagged_text(path: str | os.PathLike, format: str = "conll", **columns):
    """Reads a file with `read_conll`, which takes `columns`, or `read_word_tag`.

    Raises:
        UserError: If `format` is unknown.
        DataError: If the file cannot be read.
    """
    require_one_of("format", format, TAG_FILE_FORMATS)
    return read_conll(path, **columns) if format == "conll" else read_word_tag(path)


def read_conll(
    path: str | os.PathLike, word_column: int = 0, tag_column: int | None = -1
) -> list[TaggedSentence]:
    """Reads one word per line, with columns separated by tabs or spaces.

    An empty line ends a sentence. `-DOCSTART-` lines are skipped.

    Args:
        path: The file, in UTF-8.
        word_column: The column of the words, from 0; negative numbers count from the last column.
        tag_column: The column of the tags. None reads no tags. A file with one column has no tags.

    Raises:
        DataError: If the file is missing, empty or not UTF-8, or if its lines have different
            columns. The message names the file and the line.

    Example:
        >>> sentence = bert_tf.tasks.token_classification.read_conll("eng.train")[0]
        >>> sentence.words[:3], sentence.tags[:3]
        (['U.N.', 'official', 'Ekeus'], ['I-ORG', 'O', 'I-PER'])

    Reference: Tjong Kim Sang and De Meulder 2003, CoNLL-2003.
    """
    sentences, words, tags = [], [], []
    width = None
    for number, line in itertools.chain(read_lines(path), [(None, "")]):
        fields = _fields(line)
        if not fields or fields[0] == _DOCUMENT:
            if words:
                sentences.append(TaggedSentence(words, tags or None))
                words, tags = [], []
            continue
        if width is None:
            width = len(fields)
            if width == 1:
                tag_column = None
            for name, column in (("word_column", word_column), ("tag_column", tag_column)):
                if column is not None and not -width <= column < width:
                    expected = f"have a column {column} ({name})"
                    raise data_error(path, expected, f"{width} columns", number)
        if len(fields) != width or not all(fields):
            received = f"{line!r}. Every word needs a tag; an empty line ends a sentence."
            raise data_error(path, f"have {width} columns, as the lines before", received, number)
        words.append(fields[word_column])
        if tag_column is not None:
            tags.append(fields[tag_column])
    if not sentences:
        raise DataError(f"{path} must have one word per line. Received: no sentences")
    return sentences


def read_word_tag(path: str | os.PathLike) -> list[TaggedSentence]:
    """Reads one sentence per line, as word/tag word/tag …, the format of the People's Daily corpus.

    A word may contain slashes: the last slash is the separator.

    Args:
        path: The file, in UTF-8.

    Raises:
        DataError: If the file is missing, empty or not UTF-8, or if a word has no tag. The message
            names the file and the line.

    Example:
        >>> import pathlib
        >>> size = pathlib.Path("tagged.txt").write_text("江/nr  泽民/nr  主席/n\\n", "utf-8")
        >>> bert_tf.tasks.token_classification.read_word_tag("tagged.txt")
        [TaggedSentence(words=['江', '泽民', '主席'], tags=['nr', 'nr', 'n'])]
    """
    sentences = []
    for number, line in read_lines(path):
        sentence = TaggedSentence([], [])
        for place, field in enumerate(_fields(line), start=1):
            word, _, tag = field.rpartition("/")
            if not word or not tag:
                raise DataError(
                    f"{path}, line {number}, word {place} must be word/tag. Received: {field!r}"
                )
            sentence.words.append(word)
            sentence.tags.append(tag)
        if sentence.words:
            sentences.append(sentence)
    if not sentences:
        raise DataError(f"{path} must have lines of word/tag word/tag …. Received: no sentences")
    return sentences


def read_tag_predictions(
    path: str | os.PathLike,
    gold_path: str | os.PathLike | None = None,
    format: str = "conll",
    word_column: int = 0,
    tag_column: int = -1,
) -> tuple[list[list[str]], list[list[str]], list[list[str]]]:
    """Reads predicted tags and the gold tags of the same words.

    Args:
        path: CoNLL columns. The last one has the predicted tags and, without `gold_path`, the one
            before it the gold tags, as in `test_predictions.txt` of tools/run_ner.py.
        gold_path: A file with the gold tags, if they are not in `path`.
        format, word_column, tag_column: The format of that file and columns as in `read_conll`.

    Returns:
        The words, the gold tags and the predicted tags of each sentence.

    Raises:
        DataError: If a file cannot be read, a column is missing, or the words differ.
        UserError: If `format` is unknown.

    Example:
        >>> import pathlib
        >>> size = pathlib.Path("predictions.txt").write_text("Ada B-PER O\\nwrote O O\\n")
        >>> bert_tf.tasks.token_classification.read_tag_predictions("predictions.txt")
        ([['Ada', 'wrote']], [['B-PER', 'O']], [['O', 'O']])
    """
    predicted = _tagged(path, read_conll(path))
    if gold_path is None:
        try:  # there must be three columns
            gold = read_conll(path, word_column=-3, tag_column=-2)
        except DataError:
            expected = "have a word, its gold tag and its predicted tag per line"
            received = "two columns. Pass the file with the gold tags."
            raise data_error(path, expected, received) from None
    else:
        columns = {"word_column": word_column, "tag_column": tag_column}
        gold = _tagged(gold_path, read_tagged_text(gold_path, format, **columns))
        for number, (ours, theirs) in enumerate(zip(predicted, gold), start=1):
            if ours.words != theirs.words:
                raise DataError(
                    f"{path} must have the words of {gold_path}. Received in sentence {number}: "
                    f"{' '.join(ours.words)[:80]!r}, not {' '.join(theirs.words)[:80]!r}"
                )
        if len(gold) != len(predicted):
            raise data_error(path, f"have the {len(gold)} sentences of {gold_path}", len(predicted))
    words, tags = map(list, zip(*predicted))
    return words, [sentence.tags for sentence in gold], tags


def conll_lines(sentences: Iterable[Sequence[Sequence[str]]]) -> Iterable[str]:
    """Yields the lines of a CoNLL file.

    Args:
        sentences: The columns of each sentence: `(words, tags)`, or `(words, gold, predicted)` for
            conlleval.pl.
    """
    for columns in sentences:
        yield from (" ".join(fields) + "\n" for fields in zip(*columns, strict=True))
        yield "\n"


def _tagged(path, sentences):
    if sentences[0].tags is None:
        raise DataError(f"{path} must have a tag for every word. Received: only words")
    return sentences


def _fields(line: str) -> list[str]:
    """Divides a line at tabs, which may enclose empty columns, or if it has none at spaces.

    Only ASCII white space separates, because an ideographic space can be a word.
    """
    if "\t" in line:
        return line.split("\t") if line.strip(" \t") else []
    return [field for field in line.split(" ") if field]
