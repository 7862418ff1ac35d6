"""Reads, checks and writes vocabulary files."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base import json_schema
from bert_tf.base.file_errors import data_error
from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import read_bytes, read_json
from bert_tf.errors import DataError

CONTINUATION = "##"
# google-research's uncased vocabularies have capital letters only in a few marks such as <S>, the
# cased ones in a third of the pieces or more.
_CASED_SHARE = 0.01


def is_cased(vocabulary: Sequence[str]) -> bool:
    """Returns whether the pieces, except for those in brackets, have capital letters.

    Example:
        >>> is_cased(["[UNK]", "Paris", "##s"]), is_cased(["[UNK]", "paris", "##s"])
        (True, False)
    """
    cased = re.findall(r"(?m)^(?!\[.*\]$|<.*>$).*?[A-Z]", "\n".join(vocabulary))
    return len(cased) > _CASED_SHARE * len(vocabulary)


_MODEL = json_schema.object_of(
    {
        "type": json_schema.may_lack(json_schema.one_of("WordPiece")),
        "continuing_subword_prefix": json_schema.may_lack(json_schema.one_of(CONTINUATION)),
        "vocab": json_schema.mapping_of(json_schema.integer(), least=1),
    },
    words="a WordPiece model (if the file is no tokenizer, pass the path of vocab.txt)",
)
_ADDED_TOKEN = json_schema.object_of({"content": json_schema.text(), "id": json_schema.integer()})
_ADDED_TOKENS = json_schema.optional(json_schema.list_of(_ADDED_TOKEN))
_TOKENIZER = json_schema.object_of(
    {"model": _MODEL, "added_tokens": _ADDED_TOKENS}, words="a Hugging Face tokenizer"
)


def read_vocabulary(path: str | os.PathLike) -> list[str]:
    """Reads a `vocab.txt` (one piece per line) or a Hugging Face `tokenizer.json`.

    Args:
        path: The file, a `vocab.txt` unless its name ends in `.json`. White space around a piece is
            removed, as in google-research/bert.

    Returns:
        The pieces in the order of their ids.

    Raises:
        DataError: If the file is not a valid vocabulary. The message names the file and the line.

    Example:
        >>> bert_tf.text.write_vocabulary(["[UNK]", "hello", "##s"], "small.txt")
        >>> bert_tf.text.read_vocabulary("small.txt")
        ['[UNK]', 'hello', '##s']
    """
    if os.fspath(path).endswith(".json"):
        content = read_json(path, _TOKENIZER, DataError)
        ids = dict(content["model"]["vocab"])
        for token in content.get("added_tokens") or ():
            ids.setdefault(token["content"], token["id"])
        pieces = in_order({index: piece for piece, index in ids.items()}, len(ids), path)
    else:
        lines = read_lines(path, "a vocabulary file")
        # A piece of white space never occurs in text, but its line counts for the ids after it.
        pieces = [line.strip() or line for line in lines]
    check_vocabulary(pieces, path)
    return pieces


def read_lines(path: str | os.PathLike, what: str) -> list[str]:
    """Returns the lines of a file in UTF-8, which must be `what`.

    Raises `DataError` if it cannot be read. The message names the file and the line.
    """
    content = read_bytes(path, what, DataError)
    try:
        lines = re.split("\r\n|\n|\r", content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        received = f"bytes {content[error.start : error.end]!r}. Convert the file to UTF-8."
        raise data_error(path, "be UTF-8", received, line) from error
    return lines if lines[-1] else lines[:-1]


def write_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike) -> None:
    """Writes a `vocab.txt` that this package, google-research/bert and Hugging Face can read.

    Args:
        vocabulary: The pieces in the order of their ids.
        path: The file. It is written atomically.

    Raises:
        DataError: If a piece is empty, repeated, or has a line end or white space around it.
        CheckpointError: If an interrupted save in the directory cannot be undone.

    Example:
        >>> bert_tf.text.write_vocabulary(["[UNK]", "hello", "##s"], "small.txt")
    """
    check_vocabulary(vocabulary, path)
    for index, piece in enumerate(vocabulary):
        if re.search("[\r\n]", piece) or piece != (piece.strip() or piece):
            raise DataError(
                f"{path}, line {index + 1} must be a piece without line ends and without white "
                f"space around it, which readers remove. Received: {piece!r}."
            )
    with atomic_path(path) as new, open(new, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(piece + "\n" for piece in vocabulary)


def in_order(pieces: Mapping[int, str], count: int, place: Any, first: int = 0) -> list[str]:
    """Returns `count` pieces in the order of their ids, which must follow each other from `first`.

    Raises `DataError` if an id is missing. The message names the `place` of the pieces.
    """
    ids = range(first, first + count)
    missing = next((index for index in ids if index not in pieces), None)
    if missing is not None:
        expected = f"have the ids 0 to {ids[-1]}, each once"
        raise data_error(place, expected, f"no piece with the id {missing}")
    return [pieces[index] for index in ids]


def check_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike | None = None) -> None:
    """Checks that a vocabulary is not empty and has no empty or repeated pieces.

    Raises `DataError` if it is or has. The message names the line of the file `path`, or the index
    if `path` is None.
    """

    def place(index: int) -> str:
        return f"`vocabulary[{index}]`" if path is None else f"{path}, line {index + 1}"

    if not vocabulary:
        name = path or "`vocabulary`"
        raise DataError(f"{name} must have at least one piece. Received: no pieces.")
    is_text = all(isinstance(piece, str) for piece in vocabulary)
    if is_text and len({"", *vocabulary}) == 1 + len(vocabulary):
        return
    first: dict[str, int] = {}
    for index, piece in enumerate(vocabulary):
        if not isinstance(piece, str) or not piece:
            raise DataError(f"{place(index)} must be a non-empty piece. Received: {piece!r:.200}.")
        if first.setdefault(piece, index) != index:
            raise DataError(
                f"{place(index)} must be a piece that occurs once. Received: {piece!r:.200}, which "
                f"is also {place(first[piece])}. Rename one of them: a piece has one id."
            )
