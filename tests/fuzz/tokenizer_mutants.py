"""Sentencepiece models and normalizations that lie: well-formed messages and double arrays."""

import base64
import copy
import json
import random
import struct
from collections.abc import Iterator

from tests.fuzz import byte_mutants, json_mutants
from tests.fuzz.bundle_mutants import varint
from tests.text.subwords import charsmap

CHARSMAP = charsmap({"é": "e", "ﬁ": "fi", "e\u0301": "é"})
_TOKENS = (b"<unk>", b"<s>", b"</s>", b"<pad>", b"[CLS]", b"[SEP]", b"[MASK]")
_PIECES = [{1: token, 2: 0.0, 3: 2 if token == b"<unk>" else 3} for token in _TOKENS]
_PIECES += [{1: text.encode(), 2: -2.5, 3: 1} for text in ("▁", "▁a", "a", "é", "9,")]
# The messages of a model (a piece, the trainer, the normalizer), and the fields of each by number.
MESSAGES = [
    *((1, piece) for piece in _PIECES),
    (2, {3: 1, 24: 0, 35: 0, 40: 0}),
    (3, {2: CHARSMAP, 3: 1, 5: 1}),
]
_VALUES = [
    *(0, 1, 2, 3, 5, 2**31 - 1, 2**32, 2**63, 2**64 - 1, 2**69),
    *(0.0, -1.5, 3e38, float("nan"), float("-inf")),
    *(b"", b"a", b"\xff", b"a\0b", b"<unk>", "▁a".encode(), b"9" * 5000, CHARSMAP[:50]),
]


def model(messages: list[tuple[int, dict]] = MESSAGES) -> bytes:
    """The content of a sentencepiece model."""
    return b"".join(field(number, _message(fields)) for number, fields in messages)


def _message(fields):
    return b"".join(field(number, value) for number, value in fields.items())


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Sentencepiece models with other fields; without end, as all mutants here."""
    rng, maps = random.Random(seed), charsmap_mutants(CHARSMAP, seed)
    while True:
        messages = copy.deepcopy(MESSAGES)
        for _ in range(rng.choice((1, 1, 3))):
            _change(messages, rng, maps)
        made = model(messages)
        if rng.random() < 0.1:
            made = next(byte_mutants.mutants(made, rng.randrange(2**32), 300))
        yield made


def _change(messages, rng, maps):
    place, kind = rng.randrange(len(messages)), rng.randrange(8)
    number, fields = messages[place]
    if kind <= 1:
        fields[rng.choice([*fields, rng.randrange(1, 50)])] = rng.choice(_VALUES)
    elif kind == 2 and fields:
        del fields[rng.choice([*fields])]
    elif kind == 3:
        messages[place:place] = [(number, fields)] * rng.choice((1, 2, 1000))
    elif kind == 4:
        messages[place] = (rng.choice((1, 2, 3, 4, 1000)), fields)
    elif kind == 5:
        rng.shuffle(messages)
    else:
        messages[-1][1][2] = next(maps)


def definition_mutants(text: bytes, seed: int) -> Iterator[bytes]:
    """Other `tokenizer.json`, many of them with another normalization."""
    rng, maps = random.Random(seed), charsmap_mutants(CHARSMAP, seed)
    damaged = json_mutants.mutants(text, seed)
    while True:
        if rng.random() < 0.5:
            yield next(damaged)
        else:
            values = json.loads(text)
            (step,) = values["normalizer"]["normalizers"]
            step["precompiled_charsmap"] = base64.b64encode(next(maps)).decode()
            yield json.dumps(values).encode()


def charsmap_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Normalizations that are damaged, that lead around in circles, or whose rules share texts."""
    rng = random.Random(seed)
    damaged = byte_mutants.mutants(content, seed)
    while True:
        kind = rng.randrange(4)
        if kind == 0:
            yield next(damaged)
        elif kind == 1:
            mutant = bytearray(content)
            for _ in range(rng.choice((1, 1, 30))):
                place = rng.randrange(len(mutant) // 4) * 4
                unit = rng.choice((0, 1, 0x100, 0x3FF, 2**31, 2**32 - 1, rng.randrange(2**32)))
                mutant[place : place + 4] = struct.pack("<I", unit)
            yield bytes(mutant)
        else:
            yield _shared(rng)


def _shared(rng):
    """Nodes of all bytes that lead to a few nodes, and rules that begin in one text."""
    num_nodes, last = rng.choice((1, 1, 2, 8)), rng.choice((2, 16, 128, 256))
    units = [256 << 10, *[0] * 255]  # the root, whose children follow
    for node in range(1, num_nodes + 1):
        units.append(1 << 31 | rng.choice((0, 0, 1, 40)))  # where the result begins
        for byte in range(1, 256):
            below = (256 * node + byte) ^ 256 * rng.randrange(1, num_nodes + 1)
            units.append(below << 10 | rng.choice((0, 256)) | byte if byte < last else 0)
    text = b"a" * rng.choice((0, 1, 30, 900, 1001, 10**5)) + bytes(rng.choice((0, 1, 50)))
    return struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + text
