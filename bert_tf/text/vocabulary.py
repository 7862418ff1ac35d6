"""Reads, checks and writes vocabulary files."""

import os
import re
from collections.abc import Sequence

from bert_tf.errors import DataError
from bert_tf.files import atomic_path
from bert_tf.json_files import parse_json, read_bytes
from bert_tf.json_schema import check, integer, list_of, mapping_of, object_of, optional, text

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
    ordinary = (piece for piece in vocabulary if not re.fullmatch(r"\[.*\]|<.*>", piece))
    cased = sum(re.search("[A-Z]", piece) is not None for piece in ordinary)
    return cased > _CASED_SHARE * len(vocabulary)


_ADDED_TOKEN = object_of({"content": text(), "id": integer()})
_TOKENIZER = object_of(
    {
        "model": object_of({"vocab": mapping_of(integer(), least=1)}),
        "added_tokens": optional(list_of(_ADDED_TOKEN)),
    }
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
    content = read_bytes(path, "a vocabulary file", DataError)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line} must be UTF-8. Received: bytes "
            f"{content[error.start : error.end]!r}. Convert the file to UTF-8."
        ) from error
    if os.fspath(path).endswith(".json"):
        return _read_tokenizer_json(path, text)
    lines = re.split("\r\n|\n|\r", text)
    if not lines[-1]:
        lines.pop()
    # A piece of white space never occurs in text, but its line counts for the ids after it.
    pieces = [line.strip() or line for line in lines]
    check_vocabulary(pieces, path)
    return pieces


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


def check_vocabulary(vocabulary: Sequence[str], path: str | os.PathLike | None = None) -> None:
    """Checks that a vocabulary is not empty and has no empty or repeated pieces.

    Raises:
        DataError: If it is or has. The message names the line of the file `path`, or the index if
            `path` is None.
    """

    def place(index: int) -> str:
        return f"`vocabulary[{index}]`" if path is None else f"{path}, line {index + 1}"

    if not vocabulary:
        name = path or "`vocabulary`"
        raise DataError(f"{name} must have at least one piece. Received: no pieces.")
    first: dict[str, int] = {}
    for index, piece in enumerate(vocabulary):
        if not isinstance(piece, str) or not piece:
            raise DataError(f"{place(index)} must be a non-empty piece. Received: {piece!r:.200}.")
        if first.setdefault(piece, index) != index:
            raise DataError(
                f"{place(index)} must be a piece that occurs once. Received: {piece!r:.200}, which "
                f"is also {place(first[piece])}. Rename one of them: a piece has one id."
            )


def _read_tokenizer_json(path, text: str) -> list[str]:
    content = parse_json(text, path, error=DataError)
    model = content.get("model") if isinstance(content, dict) else None
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), dict):
        raise DataError(
            f'{path} must be a Hugging Face tokenizer with "model" and "vocab". '
            "Received: another JSON file. Pass the path of vocab.txt instead."
        )
    if (kind := model.get("type", "WordPiece")) != "WordPiece":
        raise DataError(f"{path} must have a WordPiece model. Received: type={kind!r:.200}.")
    prefix = model.get("continuing_subword_prefix", CONTINUATION)
    if prefix != CONTINUATION:
        raise DataError(
            f"`continuing_subword_prefix` in {path} must be {CONTINUATION!r}. "
            f"Received: continuing_subword_prefix={prefix!r:.200}."
        )
    check(content, _TOKENIZER, path, DataError)
    ids = dict(model["vocab"])
    for token in content.get("added_tokens") or ():
        ids.setdefault(token["content"], token["id"])
    vocabulary = sorted(ids, key=ids.get)
    for expected, piece in enumerate(vocabulary):
        if ids[piece] != expected:
            raise DataError(
                f"{path} must have the ids 0 to {len(ids) - 1}, each once. "
                f"Received: id {ids[piece]} for {piece!r:.200} instead of {expected}."
            )
    check_vocabulary(vocabulary, path)
    return vocabulary
