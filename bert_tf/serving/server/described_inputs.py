"""Whether a request keeps to what `bert_tf.serving.export` wrote about a model's inputs.

The graph itself would compute something else, or fail in a node that means nothing to a client.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError

from bert_tf.serving.server.errors import invalid
from bert_tf.serving.server.signatures import Signature

_EXAMPLES = "examples"


def check_described_inputs(
    description: Mapping[str, Any], signature: Signature, arrays: Mapping[str, np.ndarray]
) -> None:
    """Checks a request's arrays, of which the signature's shapes are right already.

    Args:
        description: What `export` wrote; of other models it is empty, and nothing is checked.
        signature: The signature.
        arrays: Of every input.

    Raises:
        RequestError: Naming the input.
    """
    first_of_rank = {}
    for name, facts in _facts(description, signature).items():
        array = arrays[name]
        if 0 in array.shape:
            raise invalid(
                f"Input {name}: at least one value in each row was expected. Received: shape "
                f"{list(array.shape)}"
            )
        other = first_of_rank.setdefault(array.ndim, name)
        if array.shape != arrays[other].shape:
            raise invalid(
                f"Inputs {other} and {name} must have the same shape. Received: "
                f"{list(arrays[other].shape)} and {list(array.shape)}"
            )
        _check_values(name, facts, array)


def _facts(description, signature):
    """What is said about the inputs that the signature has; a file may say anything."""
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
        raise invalid(
            f"Input {name}: at most {length} values in a row were expected. Received: "
            f"{array.shape[-1]}"
        )
    if isinstance(least, int) and isinstance(most, int) and array.dtype != object:
        wrong = np.argwhere((array < least) | (array > most))
        if len(wrong):
            place = tuple(wrong[0].tolist())
            raise invalid(
                f"Input {name}: values from {least} to {most} were expected. Received: "
                f"{array[place]} at {list(place)}"
            )
    if facts.get("needs_text") is True and array.dtype == object:
        empty = np.flatnonzero((array == b"").all(axis=-1))
        if len(empty):
            raise invalid(
                f"Input {name}: at least one text that is not empty was expected in each row. "
                f"Received: none in row {empty[0]}"
            )
    if name == _EXAMPLES and array.dtype == object:
        for row, value in enumerate(array.flat):
            try:
                tf.train.Example.FromString(value)
            except DecodeError:
                raise invalid(
                    f"Input {name}: serialised tf.train.Examples were expected. Received: "
                    f"something else in row {row}"
                ) from None
