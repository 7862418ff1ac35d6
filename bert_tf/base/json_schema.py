"""Schemas of JSON files: the type, range and size of every value.

    SCHEMA = object_of({"rank": integer(1), "layers": list_of(one_of("query", "key"), most=2)})
    check({"rank": 0, "layers": []}, SCHEMA, "adapter.json", CheckpointError)

raises a CheckpointError: "`rank` in adapter.json must be a positive integer of at most 2147483647.
Received: rank=0." Values are only checked, never converted.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bert_tf.errors import UserError

MOST_INTEGER = 2**31 - 1  # ids and sizes are int32 in TensorFlow
MOST_TEXT = 100_000  # characters of one string
MOST_ITEMS = 5_000_000  # of one list or mapping; no vocabulary and no set of labels has more
_SHOWN = 200  # characters of a value in a message


def _nothing(value):
    return ()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A set of JSON values.

    Attributes:
        expected: A description of the set, which follows "must be" in messages.
        fits: Returns whether a value belongs to the set, without the values inside.
        inside: Returns the key (for a list, the index in brackets), the kind and the value of
            everything inside a value; a missing value is `MISSING`.

    Example:
        >>> even = Kind("an even number", lambda value: is_integer(value) and value % 2 == 0)
        >>> check({"sizes": [2, 3]}, object_of({"sizes": list_of(even)}), "a.json", ValueError)
        Traceback (most recent call last):
        ValueError: `sizes[1]` in a.json must be an even number. Received: ...
    """

    expected: str
    fits: Callable[[Any], bool]
    inside: Callable[[Any], Iterable[tuple[str, "Kind", Any]]] = _nothing


class _Missing:
    def __repr__(self):
        return "nothing"


MISSING = _Missing()


def check(value: Any, kind: Kind, path: Any, error: type[UserError], place: str = "") -> None:
    """Checks that a value, with all values inside it, is of a kind.

    Raises:
        UserError: If it is not, an error of class `error`. The message names the file `path`, if it
            is not None, and the `place` of the value: the keys that lead to it, joined by dots.
    """
    if not kind.fits(value):
        within = "" if path is None else f" in {path}"
        name = f"`{place}`{within}" if place else f"The JSON value{within}"
        shown = repr(value) if value is MISSING else f"{place}={value!r}".removeprefix("=")
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + " …"
        raise error(f"{name} must be {kind.expected}. Received: {shown}.")
    for key, child_kind, child in kind.inside(value):
        inner = place + key if key.startswith("[") or not place else f"{place}.{key}"
        check(child, child_kind, path, error, inner)


ANYTHING = Kind("present", lambda value: value is not MISSING)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
SCALAR = Kind("a string or a number", lambda value: isinstance(value, (str, int, float)))


def is_integer(value: Any) -> bool:
    """Returns whether a value is an integer: in Python True is one, in JSON it is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_file_name(value: Any) -> bool:
    """Returns whether a value is the name of a file, without a path to another directory."""
    is_plain = isinstance(value, str) and value not in ("", ".", "..")
    return is_plain and not any(mark in value for mark in "/\\\0") and len(value) <= 255


def integer(least: int = 0, most: int = MOST_INTEGER) -> Kind:
    """Returns the kind of integers in `[least, most]`."""
    positive = f"a positive integer of at most {most}"
    words = positive if least == 1 else f"an integer in [{least}, {most}]"
    return Kind(words, lambda value: is_integer(value) and least <= value <= most)


def number(words: str = "a finite number", fits: Callable[[float], bool] = math.isfinite) -> Kind:
    """Returns the kind of finite numbers that meet the condition `fits`, described by `words`."""

    def is_one(value):
        is_number = isinstance(value, float) or is_integer(value)
        return is_number and abs(value) <= 1e300 and fits(value)

    return Kind(words, is_one)


def text(most: int = MOST_TEXT) -> Kind:
    """Returns the kind of strings of at most `most` characters."""
    words = f"a string of at most {most} characters"
    return Kind(words, lambda value: isinstance(value, str) and len(value) <= most)


def one_of(*values: Any) -> Kind:
    """Returns the kind of a few values. It distinguishes 1 from true."""
    words = " or ".join(map(repr, values))
    return Kind(words, lambda value: any(type(value) is type(v) and value == v for v in values))


def may_lack(kind: Kind) -> Kind:
    """Returns `kind` for a key that may be missing."""
    return Kind(
        kind.expected,
        lambda value: value is MISSING or kind.fits(value),
        lambda value: () if value is MISSING else kind.inside(value),
    )


def optional(kind: Kind) -> Kind:
    """Returns `kind` or null for a key that may be missing."""
    return may_lack(either(kind, Kind("null", lambda value: value is None)))


def either(first: Kind, second: Kind) -> Kind:
    """Returns the kind of values of two kinds, at most one of which is an object or a list."""
    return Kind(
        f"{first.expected}, or {second.expected}",
        lambda value: first.fits(value) or second.fits(value),
        lambda value: (first if first.fits(value) else second).inside(value),
    )


def list_of(item: Kind, least: int = 0, most: int = MOST_ITEMS) -> Kind:
    """Returns the kind of lists of `least` to `most` items of one kind."""
    return Kind(
        f"a list of {least} to {most} items",
        lambda value: isinstance(value, (list, tuple)) and least <= len(value) <= most,
        lambda value: _items(enumerate(value), item),
    )


def mapping_of(item: Kind, least: int = 0) -> Kind:
    """Returns the kind of objects of at least `least` arbitrary keys and values of one kind."""
    return Kind(
        f"an object of {least} to {MOST_ITEMS} keys",
        lambda value: isinstance(value, Mapping) and least <= len(value) <= MOST_ITEMS,
        lambda value: _items(value.items(), item),
    )


def _items(children, item):
    """Yields only items that are wrong or have values inside: a list can have a million items."""
    for key, child in children:
        if item.inside is not _nothing or not item.fits(child):
            yield f"[{key!r:.80}]", item, child


def object_of(keys: Mapping[str, Kind], only: bool = False, words: str = "an object") -> Kind:
    """Returns the kind of objects with known keys.

    Args:
        keys: The kind of each key. For a key that may be missing, `may_lack(…)` or `optional(…)`.
        only: Whether other keys are refused. False allows other keys with any values.
        words: A description of the object for messages.
    """
    return Kind(
        f"{words} with no other keys than {sorted(keys)}" if only else words,
        lambda value: isinstance(value, Mapping) and (not only or set(value) <= set(keys)),
        lambda value: ((key, kind, value.get(key, MISSING)) for key, kind in keys.items()),
    )


OBJECT = object_of({})
