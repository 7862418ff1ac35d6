"""Mutants of JSON files: most are still JSON, with another value, key or shape in one place."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

_NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    2**31 - 1,
    2**31,
    2**63,
    3 * 10**8,
    10**10,
    -(10**10),
    10**30,
    0.5,
    -0.5,
    1e-12,
    1e9,
    1e30,
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    -0.0,
)
_TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "999999999999",
    "null",
    "..",
    "../..",
    "/dev/zero",
    "/etc/passwd",
    "a/b",
    "a\0b",
    "\ud800",
    "\uffff",
    "[PAD]",
    "gelu",
    "x" * 5000,
    "%s{0}",
)
_MOST_COPIED = 200_000  # bytes: a larger file is only damaged as text


def mutants(text: bytes, seed: int) -> Iterator[bytes]:
    """Mutants of a JSON file, without end.

    Args:
        text: The file.
        seed: The same seed gives the same mutants.
    """
    rng = random.Random(seed)
    document = json.loads(text) if len(text) <= _MOST_COPIED else None
    while True:
        if document is None or rng.random() < 0.15:
            yield _damaged_text(text, rng)
        else:
            yield _damaged_document(document, rng)


def _damaged_document(document: Any, rng: random.Random) -> bytes:
    root = [copy.deepcopy(document)]  # so that the document itself is a value in a list, too
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        container, key = rng.choice(_places(root))
        rng.choice((_replace, _replace, _replace, _delete, _rename, _wrap, _exchange))(
            container, key, root, rng
        )
    values = root or [None]
    result = json.dumps(values[0]).encode()
    if rng.random() < 0.05 and result.startswith(b'{"'):  # the first key once more
        name = result[: result.index(b'"', 2) + 1]
        result = name + b": 3, " + result[1:]
    return result


def _places(root: list) -> list[tuple[Any, Any]]:
    """Every container with each of its keys, the deep ones too; of long ones a few keys."""
    places, waiting = [], [root]
    while waiting:
        container = waiting.pop()
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        places += [(container, key) for key in (*keys[:40], *keys[40:][-3:])]
        waiting += [container[key] for key in keys if isinstance(container[key], (dict, list))]
    return places


def _other_value(rng: random.Random) -> Any:
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice(_NUMBERS)
    if kind == 1:
        return rng.choice(_TEXTS)
    if kind == 2:
        return rng.choice((None, True, False))
    if kind == 3:
        return rng.choice(([], {}, [[]], [{}], {"": {}}, [None], {"0": 0}, {"a": "b"}))
    if kind == 4:
        return [rng.choice(_NUMBERS)] * rng.choice((1, 3, 2000))
    return {str(index): rng.choice(_TEXTS) for index in range(rng.choice((1, 3, 500)))}


def _replace(container, key, root, rng):
    value = container[key]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and rng.random() < 0.5:
        container[key] = rng.choice((value + 1, value - 1, -value, value * 10**9, str(value)))
    else:
        container[key] = _other_value(rng)


def _delete(container, key, root, rng):
    if container is not root and (isinstance(container, dict) or key < len(container)):
        del container[key]


def _rename(container, key, root, rng):
    if isinstance(container, dict):
        container[rng.choice((*_TEXTS, "config", "vocab_size"))] = container.pop(key)


def _wrap(container, key, root, rng):
    value = container[key]
    for _ in range(rng.choice((1, 1, 70))):  # thousands of levels are made of text, below
        value = [value] if rng.random() < 0.5 else {"config": value}
    container[key] = value


def _exchange(container, key, root, rng):
    other, other_key = rng.choice(_places(root))
    try:
        value = copy.deepcopy(other[other_key])
    except RecursionError:
        return
    container[key] = value


def _damaged_text(text: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(text)
    place = rng.randrange(len(text)) if text else 0
    kind = rng.randrange(7)
    if kind == 0 and text:
        damaged[place] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del damaged[place:]
    elif kind == 2:
        damaged[place:place] = b"[" * rng.choice((1, 100, 100_000))
    elif kind == 3:
        damaged[place:place] = bytes([rng.randrange(256)])
    elif kind == 4:
        damaged[place:place] = b"9" * rng.choice((1, 50, 5000))
    elif kind == 5:
        return rng.choice((b"", b"null", b"[]", b"{}", b"0", b'""', b"\xff\xfe{\0}\0", b"NaN"))
    else:
        del damaged[place : place + rng.randrange(1, 20)]
    return bytes(damaged)
