"""Parses the JSON of requests without stopping the other threads.

A call into C code keeps Python's global lock until it returns, and the event loop waits for it. So
no call may take long, whatever a body holds: its strings, lists and objects are counted before they
are built, and the numbers, of which there may be more, are converted by Python functions, between
which other threads run.
"""

import json
from http import HTTPStatus
from typing import Any

import numpy as np

from bert_tf.server.errors import RequestError, invalid

_SHOWN = 256  # characters of a value in an error; kMaxJsonDebugStringBytes


def parse_object(body: bytes, max_elements: int) -> dict[str, Any]:
    """Parses the body of a request.

    Raises:
        RequestError: If it is not a JSON object, or has more than `max_elements` strings, lists
            and objects.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    if (elements := _count_elements(body, max_elements)) > max_elements:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body must have at most {max_elements} strings, lists and objects. Received: "
            f"{elements}.",
            flag="max_elements",
        )
    try:
        document = _decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: not UTF-8: {error.reason}, byte {error.start}") from None
    except RecursionError:
        raise invalid("JSON Parse error: nested too deeply") from None
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {abridge(document)} Is not object")
    return document


def _count_elements(body, enough):
    """Counts the strings, lists and objects; a smaller count than `enough` may be too large."""
    most = body.count(b'"') // 2 + body.count(b"[") + body.count(b"{")
    if most <= enough:
        return most
    # Now every `"` begins or ends a string.
    text = body.replace(rb"\\", b"").replace(rb"\"", b"")
    characters = np.frombuffer(text, np.uint8)
    quotes = characters == ord('"')
    inside = np.logical_xor.accumulate(quotes)
    opening = (characters == ord("[")) | (characters == ord("{"))
    return np.count_nonzero(quotes) // 2 + np.count_nonzero(opening & ~inside)


# Functions in Python, unlike `int` and `float`.
def _integer(text):
    return int(text)


def _float(text):
    return float(text)


_decode = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_float).decode


def abridge(value: Any) -> str:
    """Returns the beginning of a JSON value, for an error."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part[: _SHOWN + 1]
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "…"
    return text
