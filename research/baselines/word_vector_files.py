"""The vectors of a tokenizer's pieces, from published files of word vectors.

Formats: the text of GloVe, a word and its numbers in each line; the text of word2vec, the same
after a line with the number of words and that of columns; the binary form of word2vec, which has
float32 numbers after each word.

Glossary: `V` vocabulary, `H` columns of the vectors.
"""

import itertools
import os
import re

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import DataError, user_error
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.text.vocabulary import CONTINUATION

# A file from a stranger must not choose how much memory it takes.
_MOST_COLUMNS = 4096
_LONGEST_WORD = 4096  # bytes
_LONGEST_LINE = _LONGEST_WORD + 32 * _MOST_COLUMNS  # bytes

_HEADER = re.compile(rb"(\d{1,15}) (\d{1,15})")
_ENDS_WITH_NUMBER = re.compile(rb".* [-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?", re.DOTALL)


def read_word_vectors(
    path: str | os.PathLike, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray]:
    """Reads the vectors of the pieces of a tokenizer from a file of GloVe or word2vec.

    A piece gets the vector of the word that is equal to it. If there is none and the tokenizer
    converts text to lower case, the piece gets that of the first word that is equal to it in lower
    case. By the same two rules, a piece `##ing` gets the vector of `ing` if the file lacks `##ing`.

    Args:
        path: The file. If its name ends with `.bin`, it has the binary form of word2vec. Otherwise
            it is text: that of word2vec if the first line is two integers, or else that of GloVe.
            A compressed file must be unpacked first.
        tokenizer: The tokenizer.

    Returns:
        The vectors float32 `[V, H]`, zeros for pieces that the file lacks, and bool `[V]`, whether
        a piece has a vector.

    Raises:
        DataError: If the file cannot be read or has no vector for any piece, a line has another
            number of columns than the others, a word that is a piece occurs twice, or a number of
            a piece is not finite. Numbers of words that are no pieces are counted, not read.

    Example:
        >>> from research.baselines import read_word_vectors
        >>> with open("glove.txt", "w") as file:
        ...     _ = file.write("film 0.5 -1\\nbad name@domain.com 0 2\\n")
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> vectors, has_vector = read_word_vectors("glove.txt", tokenizer)
        >>> vectors[has_vector]
        array([[ 0.5, -1. ]], dtype=float32)

    Reference: Pennington et al. 2014, "GloVe: Global Vectors for Word Representation"; Mikolov et
    al. 2013 (arXiv 1310.4546).
    """
    path = os.fspath(path)
    read_rows = _binary_rows if path.endswith(".bin") else _text_rows
    try:
        with open_regular(path) as file:
            return _vectors_of_pieces(read_rows(file, path), tokenizer, path)
    except OSError as error:
        raise user_error(path, "be a file of word vectors", error, DataError) from None


def _vectors_of_pieces(rows, tokenizer, path):
    pieces_of = {}  # the pieces that get the vector of a word, and whether they lack their `##`
    for piece, name in enumerate(tokenizer.vocabulary):
        forms = dict.fromkeys((name, name.removeprefix(CONTINUATION)))
        for is_part, form in enumerate(forms):
            pieces_of.setdefault(form.encode(), []).append((piece, is_part))
    lowercase = getattr(tokenizer, "lowercase", False)
    no_vector = 4  # worse than all ranks of a word
    ranks = np.full([tokenizer.vocab_size], no_vector)
    vectors, places = None, {}
    for place, word, numbers in progress_bar(rows, desc="word vectors", unit="word", leave=False):
        if vectors is None:
            vectors = np.zeros([tokenizer.vocab_size, len(numbers)], np.float32)
        if word in pieces_of and places.setdefault(word, place) != place:
            received = f"{word!r}, as in {places[word]}"
            raise user_error(f"{path}, {place},", "have a new word", received, DataError)
        lower = word.decode("utf-8", "replace").lower().encode() if lowercase else word
        for is_lowered, form in enumerate(dict.fromkeys((word, lower))):
            for piece, is_part in pieces_of.get(form, ()):
                rank = 2 * is_part + is_lowered
                if rank < ranks[piece]:
                    ranks[piece] = rank
                    vectors[piece] = _finite(numbers, f"{path}, {place},")
    has_vector = ranks < no_vector
    if not has_vector.any():
        expected = f"have a vector of one of the {tokenizer.vocab_size} pieces of the vocabulary"
        raise user_error(path, expected, "none", DataError)
    return vectors, has_vector


def _finite(numbers, subject):
    try:
        with np.errstate(over="ignore"):
            values = np.asarray(numbers, np.float32)
    except ValueError as error:
        raise user_error(subject, "have numbers after the word", error, DataError) from None
    if not np.isfinite(values).all():
        received = numbers[np.argmin(np.isfinite(values))]
        raise user_error(subject, "have finite numbers", received, DataError)
    return values


def _text_rows(file, path):
    """Yields the number of each line, its word, and its numbers as text."""

    def lines():
        while line := file.readline(_LONGEST_LINE):
            if len(line) == _LONGEST_LINE:
                expected = f"have lines of less than {_LONGEST_LINE} bytes"
                raise user_error(path, expected, line[:40], DataError)
            yield line.rstrip(b" \r\n")

    numbered = enumerate(lines(), 1)
    _, first = next(numbered, (1, b""))
    header = _HEADER.fullmatch(first)
    if header:
        count, columns = map(int, header.groups())
    else:
        count, columns = None, first.count(b" ")  # the first word has no spaces
        numbered = itertools.chain([(1, first)], numbered)
    _check_columns(columns, path, first)
    line = 1
    for line, text in numbered:
        word, *numbers = text.rsplit(b" ", columns)
        if len(numbers) != columns or _ENDS_WITH_NUMBER.fullmatch(word):
            expected = f"have a word and {columns} numbers (binary files must be named .bin)"
            raise user_error(f"{path}, line {line},", expected, text[:80], DataError)
        yield f"line {line}", word, numbers
    _check_count(count in (None, line - 1), path, count, f"{line - 1} vectors")


def _binary_rows(file, path):
    """Yields the number of each word, the word, and its numbers, float32."""
    first = file.readline(64)
    header = _HEADER.fullmatch(first.rstrip(b" \n"))
    if not header:
        expected = "begin with its number of words and that of columns, because it is named .bin"
        raise user_error(path, expected, first, DataError)
    count, columns = map(int, header.groups())
    _check_columns(columns, path, first)
    for row in range(1, count + 1):
        word = bytearray()
        while (byte := file.read(1)) not in (b" ", b"") and len(word) < _LONGEST_WORD:
            word += byte
        numbers = file.read(4 * columns)
        received = f"word {row} with {len(numbers)} of {4 * columns} bytes"
        _check_count(byte == b" " and len(numbers) == 4 * columns, path, count, received)
        yield f"word {row}", bytes(word).lstrip(b"\n"), np.frombuffer(numbers, "<f4")
    _check_count(not file.read(2).strip(b"\n"), path, count, "more after them")


def _check_columns(columns, path, first):
    if not 1 <= columns <= _MOST_COLUMNS:
        expected = f"have 1 to {_MOST_COLUMNS} columns, which are separated by single spaces"
        raise user_error(path, expected, f"{columns} in {first[:80]}", DataError)


def _check_count(holds, path, count, received):
    if not holds:
        raise user_error(path, f"have the {count} vectors that it begins with", received, DataError)
