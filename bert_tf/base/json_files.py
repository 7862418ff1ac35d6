"""Reads JSON from untrusted files.

A file can be endless, be nested deeper than Python's stack, have a key twice, or contain numbers
and strings that other programs cannot represent (NaN, 1e999, half of a surrogate pair). That is
refused with the caller's class of error. The rest is checked against a schema.
"""

import collections
import json
import math
import os
import re
from typing import Any

from bert_tf.base.json_schema import ANYTHING, Kind, check
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import CheckpointError, UserError

MOST_BYTES = 64 * 2**20  # a vocabulary of a million pieces has about 30 MB as JSON
MOST_NESTED = 64
MOST_CONTAINERS = 200_000  # lists and objects: an empty one takes 3 bytes in the file, 64 in memory
MOST_KEYS = 2_000_000  # 200 bytes each in memory, with a short key and a number
_MOST_DIGITS = 40  # Hugging Face writes int(1e30) for "no limit"


def read_json(
    path: str | os.PathLike,
    kind: Kind = ANYTHING,
    error: type[UserError] = CheckpointError,
    only_finite: bool = True,
    most_containers: int = MOST_CONTAINERS,
) -> Any:
    """Reads a JSON file and checks it against the schema `kind`.

    `only_finite` refuses NaN and infinity, which Python writes although they are not JSON.
    `most_containers` limits the lists and objects.

    Raises:
        UserError: If the file cannot be read, is too large or is not JSON in UTF-8, or a value does
            not fit the schema. The error is of class `error` and names the file.
    """
    content = read_bytes(path, "a JSON file", error)
    return parse_json(content, path, kind, error, only_finite, most_containers)


def read_json_if_any(path: str | os.PathLike, *options: Any, **limits: int) -> Any:
    """Returns what `read_json` does with the same arguments, {} if there is no file."""
    return read_json(path, *options, **limits) if os.path.exists(path) else {}


def read_bytes(path: str | os.PathLike, what: str, error: type[UserError]) -> bytes:
    """Returns the content of a file of at most `MOST_BYTES`.

    Raises:
        UserError: If the file, which must be `what`, cannot be read, is larger, or is not a regular
            file. The error is of class `error`.
    """
    try:
        with open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise OSError(f"a file larger than {MOST_BYTES:,} bytes")
    except OSError as reason:
        raise error(f"{path} must be {what}. Received: {reason.strerror or reason}.") from None
    return content


def parse_json(
    content: bytes | memoryview | str,
    path: str | os.PathLike,
    kind: Kind = ANYTHING,
    error: type[UserError] = CheckpointError,
    only_finite: bool = True,
    most_containers: int = MOST_CONTAINERS,
) -> Any:
    """Parses JSON that is in memory and checks it like `read_json`; `path` is its file.

    Raises:
        UserError: See `read_json`.
    """
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"a file larger than {MOST_BYTES:,} bytes")
        text = content if isinstance(content, str) else str(content, "utf-8")
        if text.count("[") + text.count("{") > most_containers:
            raise ValueError(f"more than {most_containers:,} lists and objects")
        if text.count(":") > MOST_KEYS:
            raise ValueError(f"more than {MOST_KEYS:,} colons, one of which is after each key")
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_refuse_constant if only_finite else None,
            parse_float=_finite if only_finite else None,
            parse_int=_short_integer,
        )
        _require_shallow(value)
        if re.search(r"\\u[dD]", text):
            json.dumps(value, ensure_ascii=False).encode("utf-8")  # no half of a surrogate pair
    except UnicodeError as reason:
        raise error(f"{path} must be a JSON file in UTF-8. Received: {reason.reason}.") from None
    except (ValueError, RecursionError) as reason:
        raise error(f"{path} must be a valid JSON file. Received: {reason}.") from None
    check(value, kind, path, error)
    return value


def write_json(path: str | os.PathLike, values: Any, sort_keys: bool = False) -> None:
    """Writes a JSON file that people can read, without escapes of letters."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2, ensure_ascii=False, sort_keys=sort_keys)
        file.write("\n")


def _object(pairs):
    values = dict(pairs)
    if len(values) < len(pairs):
        repeated = collections.Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {repeated!r:.80} occurs more than once")
    return values


def _refuse_constant(name):
    raise ValueError(f"{name}, which is not a number in JSON")


def _finite(digits):
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.40}, which is too large a number")
    return value


def _short_integer(digits):
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _require_shallow(value):
    level = [[value]]
    for _ in range(MOST_NESTED + 1):
        level = [
            child
            for parent in level
            for child in (parent.values() if isinstance(parent, dict) else parent)
            if isinstance(child, (dict, list))
        ]
    if level:
        raise ValueError(f"lists and objects in more than {MOST_NESTED} levels")
