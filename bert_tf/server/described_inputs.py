"""Checks that a request matches the description of a model that `bert_tf.serving.export` wrote.

Without this check the graph would compute a wrong result, or raise an error that does not help a
client.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf.server.errors import invalid
from bert_tf.server.signatures import Signature


def check_described_inputs(
    description: Mapping[str, Any], signature: Signature, arrays: Mapping[str, np.ndarray]
) -> None:
    """Checks the arrays of a request, whose shapes match the signature.

    `description` is empty for a model that `export` did not write.

    Raises:
        RequestError: If an input is not as described, has rows without values, or its shape differs
            from that of another input that is described with the same.
    """
    first_of_shape = {}
    for name, facts in _facts(description, signature).items():
        array = arrays[name]
        if 0 in array.shape:
            shape = list(array.shape)
            raise invalid(f"`{name}` must have at least one value in each row. Received: {shape=}")
        other = first_of_shape.setdefault((array.ndim, str(facts.get("shape"))), name)
        if array.shape != arrays[other].shape:
            raise invalid(
                f"`{other}` and `{name}` must have the same shape. Received: "
                f"{list(arrays[other].shape)} and {list(array.shape)}"
            )
        _check_values(name, facts, array)


def _facts(description, signature):
    """Returns the descriptions of the signature's inputs; the file may hold arbitrary JSON."""
    try:
        inputs = description["signatures"][signature.name]["inputs"].items()
    except (KeyError, TypeError, AttributeError):
        return {}
    return {
        name: facts
        for name, facts in inputs
        if name in signature.inputs and isinstance(facts, dict)
    }


def _check_values(name, facts, array):
    least, most, length = (facts.get(key) for key in ("minimum", "maximum", "max_length"))
    if isinstance(length, int) and array.shape[-1] > length:
        received = array.shape[-1]
        raise invalid(f"`{name}` must have at most {length} values in a row. Received: {received}")
    if isinstance(least, int) and isinstance(most, int) and array.dtype != object:
        wrong = np.argwhere((array < least) | (array > most))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise invalid(
                f"`{name}` must have values from {least} to {most}. Received: {array[place]} at "
                f"{list(place)}"
            )
    if facts.get("needs_text") is True and array.dtype == object:
        empty = np.flatnonzero((array == b"").all(axis=-1))
        if len(empty):
            raise invalid(
                f"`{name}` must have at least one non-empty text in each row. Received: none in "
                f"row {empty[0]}"
            )
    if name == "examples" and array.dtype == object:
        for row, value in enumerate(array.flat):
            try:
                tf.train.Example.FromString(value)
            except DecodeError:
                raise invalid(
                    f"`{name}` must hold serialised tf.train.Examples. Received: other bytes in "
                    f"row {row}"
                ) from None
