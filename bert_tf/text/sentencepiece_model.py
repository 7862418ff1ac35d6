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

from google.protobuf import empty_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bert_tf.errors import DataError
from bert_tf.json_files import read_bytes

MOST_RULES = 1_000_000  # nmt_nfkc has 6,400
MOST_NODES = 100_000
MOST_MODEL_BYTES = 16 * 2**20  # XLM-R's has 5 MB; a field of 2 bytes takes 100 in memory
MOST_RULE_BYTES = 5  # tokenizers, src/normalizers/precompiled.rs
UNIGRAM = 1  # TrainerSpec.ModelType
# Messages that are read, and their fields: number -> name. "piece" repeats, and all are optional.
_MODEL = {1: "piece", 2: "trainer", 3: "normalizer"}
_PIECE = {1: "text", 2: "score", 3: "type"}
_TRAINER = {3: "model_type", 24: "treat_whitespace_as_suffix", 35: "byte_fallback", 40: "unk_id"}
_NORMALIZER = {2: "charsmap", 3: "add_dummy_prefix", 5: "escape_whitespaces"}
_SUPPORTED = {
    "model_type": UNIGRAM,
    "byte_fallback": 0,
    "treat_whitespace_as_suffix": 0,
    "add_dummy_prefix": 1,
    "escape_whitespaces": 1,
}


def read_model(path: str | os.PathLike) -> dict[str, Any]:
    """Returns `pieces` (texts with scores), `types`, `unk_id` and `charsmap` of a Unigram model.

    Raises:
        DataError: If the file cannot be read, or is malformed or a model of another kind.
    """
    content = read_bytes(path, "a sentencepiece model", DataError)
    pieces, types, trainer, normalizer = [], [], {}, {}
    try:
        if len(content) > MOST_MODEL_BYTES:
            raise ValueError(f"more than {MOST_MODEL_BYTES:,} bytes")
        for name, value in _fields(content, _MODEL):
            if name == "trainer":
                trainer = dict(_fields(value, _TRAINER))
            elif name == "normalizer":
                normalizer = dict(_fields(value, _NORMALIZER))
            else:
                piece = dict(_fields(value, _PIECE))
                score = struct.unpack("<f", struct.pack("<I", piece.get("score", 0)))[0]
                pieces.append((piece.get("text", b"").decode(), score))
                types.append(piece.get("type", 1))
        if not pieces:
            raise ValueError("no pieces")
    except (DecodeError, ValueError, AttributeError, TypeError, struct.error) as error:
        raise DataError(
            f"{path} must be a sentencepiece model. Received: {type(error).__name__}: {error}."
        ) from None
    found = {**_SUPPORTED, **trainer, **normalizer}
    other = {name: found[name] for name, value in _SUPPORTED.items() if found[name] != value}
    if other:
        raise DataError(
            f"{path} must be a Unigram model without byte fallback, with white space as a prefix. "
            f"Received: {', '.join(f'{name}={value}' for name, value in other.items())}."
        )
    return {
        "pieces": pieces,
        "types": types,
        "unk_id": trainer.get("unk_id", 0),
        "charsmap": normalizer.get("charsmap", b""),
    }


def _fields(data: bytes, names: dict[int, str]) -> Iterator[tuple[str, Any]]:
    """Yields the named fields of a message: integers, or the bytes of strings and messages."""
    # A message that declares no fields keeps all of them as unknown ones.
    for field in UnknownFieldSet(empty_pb2.Empty.FromString(data)):
        if field.field_number in names:
            yield names[field.field_number], field.data


def charsmap_rules(encoded: str) -> dict[str, str]:
    """Returns what strings become in a `precompiled_charsmap`.

    Matches Hugging Face's `tokenizers`: strings of more than 5 bytes, and those that begin with
    another one, are not looked up, and are left out here.

    Raises:
        DataError: If it is malformed. The message names the file `path`.
    """
    rules: dict[str, str] = {}
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
                    rules[key.decode()] = texts[value : texts.index(0, value)].decode()
                elif len(key) < MOST_RULE_BYTES:
                    stack.append((below, key))
            if num_nodes > MOST_NODES or len(rules) > MOST_RULES:
                raise ValueError("too many rules")
    except (TypeError, ValueError, IndexError, struct.error) as error:
        raise DataError(f"`precompiled_charsmap` must be valid. Received: {error}.") from None
    return rules
