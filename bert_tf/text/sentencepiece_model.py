"""Reads the model files of sentencepiece without sentencepiece.

Such a file is a protocol buffer, `ModelProto` in `sentencepiece_model.proto`. Only the fields below
are read. A normalization (`precompiled_charsmap`) is a trie of UTF-8 strings, a double array of
darts-clone, and the strings that they become.
"""

import array
import base64
import os
import struct
from collections.abc import Iterator
from typing import Any

from bert_tf.base.file_errors import data_error
from bert_tf.base.json_files import read_bytes
from bert_tf.errors import DataError

MOST_PIECES = 1_000_000  # XLM-V has 901,629; each takes about 500 bytes in memory
MOST_NODES = 100_000  # nmt_nfkc has 4,300, and 5,700 rules
MOST_RULE_BYTES = 5  # tokenizers, src/normalizers/precompiled.rs
MOST_RESULT_BYTES = 1000  # of one rule; Unicode's longest, of U+FDFA, has 33
UNIGRAM = 1  # TrainerSpec.ModelType
# How a value is encoded (protobuf's "wire types").
_INTEGER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5
# Messages that are read, and their fields: number -> name and encoding. "piece" repeats, and all
# are optional.
_MODEL = {1: ("piece", _BYTES), 2: ("trainer", _BYTES), 3: ("normalizer", _BYTES)}
_PIECE = {1: ("text", _BYTES), 2: ("score", _FOUR_BYTES), 3: ("type", _INTEGER)}
_TRAINER = {
    3: ("model_type", _INTEGER),
    24: ("treat_whitespace_as_suffix", _INTEGER),
    40: ("unk_id", _INTEGER),
}
_NORMALIZER = {
    2: ("charsmap", _BYTES),
    3: ("add_dummy_prefix", _INTEGER),
    5: ("escape_whitespaces", _INTEGER),
}
_SUPPORTED = {
    "model_type": UNIGRAM,
    "treat_whitespace_as_suffix": 0,
    "add_dummy_prefix": 1,
    "escape_whitespaces": 1,
}


def read_model(path: str | os.PathLike) -> dict[str, Any]:
    """Returns `pieces` (texts with scores), `types`, `unk_id` and `charsmap` of a Unigram model.

    Byte fallback is ignored, as in transformers. Raises `DataError` if the file cannot be read, or
    is malformed or a model of another kind.
    """
    content = read_bytes(path, "a sentencepiece model", DataError)
    pieces, types, trainer, normalizer = [], [], {}, {}
    try:
        for name, value in _fields(content, _MODEL):
            if name == "trainer":
                trainer = dict(_fields(value, _TRAINER))
            elif name == "normalizer":
                normalizer = dict(_fields(value, _NORMALIZER))
            else:
                piece = dict(_fields(value, _PIECE))
                (score,) = struct.unpack("<f", piece.get("score", bytes(4)))
                pieces.append((piece.get("text", b"").decode(), score))
                types.append(piece.get("type", 1))
                if len(pieces) > MOST_PIECES:
                    raise ValueError(f"more than {MOST_PIECES:,} pieces")
        if not pieces:
            raise ValueError("no pieces")
    except (ValueError, IndexError, struct.error) as error:
        expected = "be a sentencepiece model"
        raise data_error(path, expected, f"{type(error).__name__}: {error}") from None
    found = {**_SUPPORTED, **trainer, **normalizer}
    other = {name: found[name] for name, value in _SUPPORTED.items() if found[name] != value}
    if other:
        expected = "be a Unigram model with white space as a prefix"
        received = ", ".join((f"{name}={value}" for name, value in other.items()))
        raise data_error(path, expected, received)
    return {
        "pieces": pieces,
        "types": types,
        "unk_id": trainer.get("unk_id", 0),
        "charsmap": normalizer.get("charsmap", b""),
    }


def _fields(data: bytes, names: dict[int, tuple[str, int]]) -> Iterator[tuple[str, Any]]:
    """Yields the named fields of a message: integers, or the bytes of all other values.

    It reads one field at a time: protobuf's reader of unknown messages takes 50 times the file's
    size. Raises `ValueError` if the message is malformed, or a field has another encoding, and
    `IndexError` if it is truncated.
    """
    place = 0
    while place < len(data):
        tag, place = _integer(data, place)
        kind, value = tag & 7, None
        if kind == _INTEGER:
            value, place = _integer(data, place)
        elif kind == _BYTES:
            size, place = _integer(data, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field with the encoding {kind}")
        if value is None:
            value, place = data[place : place + size], place + size
            if place > len(data):
                raise IndexError("a truncated field")
        name, expected = names.get(tag >> 3, (None, None))
        if name is not None:
            if kind != expected:
                raise ValueError(f"{name} with the encoding {kind}")
            yield name, value


def _integer(data: bytes, place: int) -> tuple[int, int]:
    """Returns the integer in base 128 at a place, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError("an integer of more than 64 bits")


def charsmap_rules(encoded: str) -> dict[str, str]:
    """Returns what strings become in a `precompiled_charsmap`.

    Matches Hugging Face's `tokenizers`: strings of more than 5 bytes, and those that begin with
    another one, are not looked up, and are left out here. Raises `DataError` if it is malformed, or
    makes more text than it has bytes, as when rules share a long one.
    """
    rules: dict[str, str] = {}
    made = 0
    try:
        charsmap = base64.b64decode(encoded, validate=True)
        size = struct.unpack_from("<I", charsmap)[0] // 4
        units = array.array("I", charsmap[4 : 4 + 4 * size])
        texts = charsmap[4 + 4 * size :]

        def offset(unit: int) -> int:
            return (unit >> 10) << ((unit & 512) >> 6)

        stack, num_nodes = [(offset(units[0]), b"")], 0
        while stack:
            node, prefix = stack.pop()
            num_nodes += 1
            for byte in range(1, 256):
                child = node ^ byte
                if child >= size or units[child] & 0x800000FF != byte:
                    continue
                below, key = child ^ offset(units[child]), prefix + bytes([byte])
                if units[child] & 256:
                    value = units[below] & 0x7FFFFFFF
                    end = texts.index(0, value)
                    made += end - value
                    if end - value > MOST_RESULT_BYTES or made > len(charsmap):
                        raise ValueError("results that are too long")
                    rules[key.decode()] = texts[value:end].decode()
                elif len(key) < MOST_RULE_BYTES:
                    stack.append((below, key))
            if num_nodes > min(size, MOST_NODES) or len(rules) > size:
                raise ValueError("too many rules")
    except (TypeError, ValueError, IndexError, struct.error) as error:
        raise DataError(f"`precompiled_charsmap` must be valid. Received: {error}.") from None
    return rules
