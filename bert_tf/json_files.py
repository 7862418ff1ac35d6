"""The one way in which JSON is read from files that a stranger may have sent.

JSON's grammar is not enough: a file can be endless, nest deeper than Python's stack, name a key
twice, and hold numbers and strings that nothing else can (NaN, 1e999, half of a surrogate pair).
All of that is refused here with the error of the caller; what remains is compared with a schema.
"""

import collections
import errno
import json
import math
import os
import re
import stat
from typing import Any

from bert_tf.errors import CheckpointError, UserError
from bert_tf.json_schema import ANYTHING, Kind, check

MOST_BYTES = 64 * 2**20  # a vocabulary of a million pieces has about 30 MB as JSON
MOST_NESTED = 64
MOST_CONTAINERS = 200_000  # lists and objects: an empty one takes 3 bytes in the file, 64 in memory
_MOST_DIGITS = 40  # Hugging Face writes int(1e30) for "no limit"


def read_json(
    path: str | os.PathLike,
    kind: Kind = ANYTHING,
    error: type[UserError] = CheckpointError,
    only_finite: bool = True,
) -> Any:
    """Reads a JSON file and compares it with its schema.

    Args:
        path: The file.
        kind: What it must hold.
        error: The class of the errors.
        only_finite: Whether to refuse NaN and infinity, which JSON does not have and Python writes.

    Returns:
        The value.

    Raises:
        UserError: Of the class `error`, naming the file: if it cannot be read, is too large, is not
            JSON in UTF-8, or a key is missing or has a value that it cannot have.
    """
    try:
        content = read_bytes(path)
    except OSError as reason:
        raise error(f"{path} must be a JSON file. Received: {reason.strerror or reason}") from None
    return parse_json(content, path, kind, error, only_finite)


def read_bytes(path: str | os.PathLike, most: int = MOST_BYTES) -> bytes:
    """The content of a file that must be small.

    Raises:
        OSError: If it cannot be read, is no regular file (a device never ends) or is larger.
    """
    if stat.S_ISDIR(mode := os.stat(path).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):  # a named pipe would wait for its writer
        raise OSError("it is not a regular file")
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"it is larger than {most:,} bytes")
    return content


def parse_json(
    content: bytes | memoryview | str,
    path: str | os.PathLike,
    kind: Kind = ANYTHING,
    error: type[UserError] = CheckpointError,
    only_finite: bool = True,
) -> Any:
    """`read_json` of content that is in memory already; `path` names it in messages."""
    try:
        if len(content) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES:,} bytes")
        text = content if isinstance(content, str) else str(content, "utf-8")
        if text.count("[") + text.count("{") > MOST_CONTAINERS:
            raise ValueError(f"more than {MOST_CONTAINERS:,} lists and objects")
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
        raise error(f"{path} must be a JSON file in UTF-8. Received: {reason.reason}") from None
    except (ValueError, RecursionError) as reason:
        raise error(f"{path} is not a JSON file that can be read: {reason}") from None
    check(value, kind, path, error)
    return value


def _object(pairs):
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = collections.Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r:.80} occurs more than once")
    return values


def _refuse_constant(name):
    raise ValueError(f"{name} is no number in JSON")


def _finite(digits):
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{digits:.40} is too large a number")
    return value


def _short_integer(digits):
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"an integer of {len(digits)} digits")
    return int(digits)


def _require_shallow(value):
    level = [value]
    for _ in range(MOST_NESTED):
        children = (
            child
            for container in level
            if isinstance(container, (dict, list))
            for child in (container.values() if isinstance(container, dict) else container)
        )
        level = [child for child in children if isinstance(child, (dict, list))]
        if not level:
            return
    raise ValueError(f"lists and objects in more than {MOST_NESTED} levels")
