"""What a JSON file may hold, written as a value: types, ranges and sizes of every key.

    SCHEMA = object_of({"rank": integer(1), "layers": list_of(one_of("query", "key"), most=2)})
    check({"rank": 0, "layers": []}, SCHEMA, "adapter.json", CheckpointError)

raises a CheckpointError with the message

    `rank` in adapter.json must be a positive integer of at most 2147483647. Received: rank=0

Nothing is converted: what was checked is used as it was read.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bert_tf.errors import UserError

MOST_INTEGER = 2**31 - 1  # ids and sizes are int32 in TensorFlow
MOST_TEXT = 100_000  # characters of one string
MOST_ITEMS = 5_000_000  # of one list or mapping: no vocabulary and no set of labels is longer
_SHOWN = 200  # characters of a value in a message


def _nothing(value):
    return ()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A set of JSON values.

    Attributes:
        expected: The set in words, after "must be".
        fits: Whether a value belongs to it, but for what is inside the value.
        inside: The values inside, each with its key (in brackets in a list) and its kind. A missing
            value is `MISSING`.
    """

    expected: str
    fits: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[tuple[str, "Kind", Any]]] = _nothing


class _Missing:
    def __repr__(self):
        return "nothing"


MISSING = _Missing()


def check(value: Any, kind: Kind, path: Any, error: type[UserError], place: str = "") -> None:
    """Compares a value with a kind, everything inside included.

    Args:
        value: What was read.
        kind: What it must be.
        path: The file, for the message; None for a value from a program.
        error: The class of the error.
        place: The keys that lead to `value`, joined by dots.

    Raises:
        UserError: Of the class `error`; names the file and the key.
    """
    if not kind.fits(value):
        within = "" if path is None else f" in {path}"
        name = f"`{place}`{within}" if place else f"The JSON value{within}"
        shown = repr(value) if value is MISSING else f"{place}={value!r}".removeprefix("=")
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + " …"
        raise error(f"{name} must be {kind.expected}. Received: {shown}")
    for key, child_kind, child in kind.inside(value):
        inner = place + key if key.startswith("[") or not place else f"{place}.{key}"
        check(child, child_kind, path, error, inner)


ANYTHING = Kind("present", lambda value: value is not MISSING)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
SCALAR = Kind("a string or a number", lambda value: isinstance(value, (str, int, float)))


def is_integer(value: Any) -> bool:
    """Whether a value is an integer: to Python True is one, to JSON it is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_file_name(value: Any) -> bool:
    """Whether a value names a file of the same directory, without a way out of it."""
    is_plain = isinstance(value, str) and value not in ("", ".", "..")
    return is_plain and not any(mark in value for mark in "/\\\0") and len(value) <= 255


def integer(least: int = 0, most: int = MOST_INTEGER) -> Kind:
    """Integers in `[least, most]`."""
    words = f"an integer in [{least}, {most}]"
    if least == 1:
        words = f"a positive integer of at most {most}"
    return Kind(words, lambda value: is_integer(value) and least <= value <= most)


def number(words: str = "a finite number", fits: Callable[[float], bool] = math.isfinite) -> Kind:
    """Integers and floating-point numbers that are finite and fulfil a condition."""

    def is_one(value):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and abs(value) <= 1e300 and fits(value)

    return Kind(words, is_one)


def text(most: int = MOST_TEXT) -> Kind:
    """Strings of at most `most` characters."""
    return Kind(
        f"a string of at most {most} characters",
        lambda value: isinstance(value, str) and len(value) <= most,
    )


def one_of(*values: Any) -> Kind:
    """One of a few values. 1 and true are not the same here."""
    return Kind(
        " or ".join(map(repr, values)),
        lambda value: any(type(value) is type(one) and value == one for one in values),
    )


def may_lack(kind: Kind) -> Kind:
    """`kind`, as a key of an object that may be missing."""
    return Kind(
        kind.expected,
        lambda value: value is MISSING or kind.fits(value),
        lambda value: () if value is MISSING else kind.inside(value),
    )


def optional(kind: Kind) -> Kind:
    """`kind` or null, as a key of an object that may be missing."""
    return may_lack(
        Kind(
            f"{kind.expected}, or null",
            lambda value: value is None or kind.fits(value),
            lambda value: () if value is None else kind.inside(value),
        )
    )


def either(first: Kind, second: Kind) -> Kind:
    """Values of two kinds, of which at most one is an object or a list."""
    return Kind(
        f"{first.expected}, or {second.expected}",
        lambda value: first.fits(value) or second.fits(value),
        lambda value: (first if first.fits(value) else second).inside(value),
    )


def list_of(item: Kind, least: int = 0, most: int = MOST_ITEMS) -> Kind:
    """Lists of `least` to `most` items of one kind."""
    return Kind(
        f"a list of {least} to {most} items",
        lambda value: isinstance(value, (list, tuple)) and least <= len(value) <= most,
        lambda value: _items(enumerate(value), item),
    )


def mapping_of(item: Kind, least: int = 0, most: int = MOST_ITEMS) -> Kind:
    """Objects whose keys are data: `least` to `most` of them, the values of one kind."""
    return Kind(
        f"an object of {least} to {most} keys",
        lambda value: isinstance(value, Mapping) and least <= len(value) <= most,
        lambda value: _items(value.items(), item),
    )


def _items(children, item):
    """Those to look at more closely: a vocabulary has 100,000 and more, and most just fit."""
    for key, child in children:
        if item.inside is not _nothing or not item.fits(child):
            yield f"[{key!r:.80}]", item, child


def object_of(keys: Mapping[str, Kind], only: bool = False) -> Kind:
    """Objects with known keys.

    Args:
        keys: The kind of each; one that may be missing is `may_lack(…)` or `optional(…)`.
        only: Whether other keys are refused; else they may hold anything.
    """

    def has_known_keys(value):
        return isinstance(value, Mapping) and (not only or set(value) <= set(keys))

    return Kind(
        f"an object with no other keys than {sorted(keys)}" if only else "an object",
        has_known_keys,
        lambda value: ((key, kind, value.get(key, MISSING)) for key, kind in keys.items()),
    )


OBJECT = object_of({})
