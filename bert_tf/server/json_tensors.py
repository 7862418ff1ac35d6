"""Converts between arrays and TensorFlow Serving's JSON of requests and answers.

Row format: `{"instances": [row, ...]}` -> `{"predictions": [row, ...]}`. Column format:
`{"inputs": {name: rows}}` -> `{"outputs": {name: rows}}`. The name of a single input or output is
omitted.

Reference: tensorflow_serving/g3doc/api_rest.md; util/json_tensor.cc.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.server.errors import invalid
from bert_tf.server.json_bodies import abridge, parse_object
from bert_tf.server.signatures import (
    DEFAULT_SIGNATURE,
    Signature,
    TensorSpec,
    check_length,
    is_binary,
    text_length,
)

ROWS, COLUMNS = "instances", "inputs"
_ANSWERS = {ROWS: "predictions", COLUMNS: "outputs"}
_BASE64 = "b64"
# Converted to JSON at once: as Python objects they need 30 times the memory, and a longer call into
# C code would stop the other threads.
_VALUES_AT_ONCE = 1 << 14
_BYTES_OF_VALUE = 64  # of a string that counts as one more value
_TYPES = {dict: "Object", list: "Array", str: "String", bool: "Boolean", type(None): "Null"}
_INTEGERS = (tf.int8, tf.uint8, tf.int16, tf.int32, tf.uint32, tf.int64, tf.uint64)
# The types of the JSON values of a tensor that holds no strings.
_PYTHON_TYPES = {
    tf.bool: (bool,),
    **dict.fromkeys((tf.float32, tf.float64), (int, float)),
    **dict.fromkeys(_INTEGERS, (int,)),
}
json_text = json.JSONEncoder(ensure_ascii=False).encode  # of strings, numbers and lists of them


class PredictRequest(NamedTuple):
    """A parsed request."""

    signature_name: str
    format: str  # `ROWS` or `COLUMNS`
    values: Any  # the value of this key in the body


def parse_predict(body: bytes, max_elements: int) -> PredictRequest:
    """Parses the body of a request for predictions, as `parse_object`.

    Raises:
        RequestError: If it is not a JSON object in row or column format.
    """
    document = parse_object(body, max_elements)
    name = signature_name(document)
    formats = [key for key in (ROWS, COLUMNS) if key in document]
    if len(formats) > 1:
        raise invalid(
            f"JSON Value: {abridge(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist"
        )
    if not formats:
        raise invalid("Missing 'inputs' or 'instances' key")
    return PredictRequest(name or DEFAULT_SIGNATURE, formats[0], document[formats[0]])


def signature_name(document: Mapping[str, Any]) -> str:
    """Returns the name of the signature in the body of a request, by default empty.

    Raises:
        RequestError: If it is no string.
    """
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {abridge(document)} not formatted correctly. 'signature_name' key must "
            "be a string value."
        )
    return name


def arrays_of(
    request: PredictRequest,
    signature: Signature,
    max_text_length: int,
    names: Mapping[str, str] | None = None,
) -> dict[str, np.ndarray]:
    """Converts the result of `parse_predict` to the arrays of all inputs of the signature.

    `names` has the names of inputs in errors, where the client knows other ones.

    Raises:
        RequestError: If inputs are missing or unknown, a string has more than `max_text_length`
            characters, or values have another type or shape than in the signature.
    """
    columns = (_columns_of_rows if request.format == ROWS else _columns)(request.values, signature)
    names = names or {}
    return {
        name: _array(columns[name], spec, names.get(name, name), max_text_length)
        for name, spec in signature.inputs.items()
    }


def answer_parts(format: str, outputs: Mapping[str, np.ndarray]) -> Iterator[str]:
    """Generates the JSON of an answer in parts, so that a large answer is never fully in memory.

    Raises:
        RequestError: Before the first part, if the row format is used for outputs without rows.
    """
    yield f'{{"{_ANSWERS[format]}": '
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        yield from _array_parts(array, is_binary(name))
    elif format == COLUMNS:
        yield from _object_parts(outputs)
    else:
        yield "["
        for row in range(len(next(iter(outputs.values())))):
            yield ", " if row else ""
            yield from _object_parts({name: array[row, ...] for name, array in outputs.items()})
        yield "]"
    yield "}\n"


def _object_parts(arrays):
    for number, (name, array) in enumerate(arrays.items()):
        yield ("{" if number == 0 else ", ") + json_text(name) + ": "
        yield from _array_parts(array, is_binary(name))
    yield "}"


def _array_parts(array, binary):
    values = _values(array)
    if array.ndim == 0 or values <= _VALUES_AT_ONCE:
        yield array_text(array, binary)
        return
    yield "["
    step = max(1, _VALUES_AT_ONCE * len(array) // values)
    for start in range(0, len(array), step):
        yield ", " if start else ""
        if step == 1 and array.ndim > 1:
            yield from _array_parts(array[start], binary)
        else:
            yield array_text(array[start : start + step], binary)[1:-1]
    yield "]"


def _values(array):
    """Returns how many numbers are converted to JSON in the time that this array takes."""
    is_text = array.dtype == object
    return array.size + (sum(map(len, array.flat)) // _BYTES_OF_VALUE if is_text else 0)


def array_text(array: np.ndarray, binary: bool = False) -> str:
    """Returns the JSON of an array: floats with as few digits as their dtype needs.

    Example:
        >>> array_text(np.array([[0.2, 1], [np.nan, -np.inf]], np.float32))
        '[[0.2, 1.0], [NaN, -Infinity]]'
    """
    if array.dtype == object:
        return json_text(_strings(array.tolist(), binary))
    if array.dtype.kind != "f":
        return json_text(array.tolist())
    # NumPy writes 0.2 for the float32 whose exact value is 0.20000000298. Python writes lists of
    # its strings as JSON writes lists of numbers, except for the quotes.
    text = str(array.astype(str).tolist()).replace("'", "")
    return text.replace("nan", "NaN").replace("inf", "Infinity") if "n" in text else text


def _strings(values, binary):
    if isinstance(values, list):
        return [_strings(value, binary) for value in values]
    if binary:
        return {_BASE64: base64.b64encode(values).decode("ascii")}
    return values.decode("utf-8", "replace")


def _columns_of_rows(rows, signature):
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {abridge(rows)} Expecting 'instances' to be an list/array")
    if not rows:
        raise invalid("No values in 'instances' array")
    names = list(signature.inputs)
    if not signature.has_rows:
        raise invalid(
            "The request must use the column format, 'inputs', because the inputs of signature "
            f"{signature.name} do not have one row per example. Received: 'instances'"
        )
    if not any(map(_is_named, rows)):
        if len(names) > 1:
            raise invalid(
                "instances is a plain list, but expecting list of objects as multiple input "
                f"tensors are required: {', '.join(names)}"
            )
        return {names[0]: rows}
    for number, row in enumerate(rows):
        if not _is_named(row):
            kind = _TYPES.get(type(row), "Number")
            raise invalid(f"Expecting object but got {kind} at item {number} of input list")
        if row.keys() != signature.inputs.keys():
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{abridge(row)} keys must be equal to: {','.join(names)}"
            )
    return {name: [row[name] for row in rows] for name in names}


def _columns(values, signature):
    names = list(signature.inputs)
    if not _is_named(values):
        if len(names) != 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                f"are required: {', '.join(names)}"
            )
        return {names[0]: values}
    missing = [name for name in names if name not in values]
    if missing:
        raise invalid(f"Missing named input: {missing[0]} in 'inputs' object.")
    if unknown := [name for name in values if name not in signature.inputs]:
        raise invalid(
            f"Unknown named input: {abridge(unknown)} in 'inputs' object. Expected: "
            f"{', '.join(names)}"
        )
    return values


def _is_named(value):
    return isinstance(value, dict) and not is_base64(value)


def is_base64(value: dict) -> bool:
    """Returns whether a JSON object is a string in base64."""
    return len(value) == 1 and isinstance(value.get(_BASE64), str)


def _array(values, spec: TensorSpec, name, max_text_length):
    shape, inner = [], values
    while isinstance(inner, list):
        shape.append(len(inner))
        inner = inner[0] if inner else None
    flat = _flattened(values, shape, name)
    spec.require(name, shape)
    if spec.is_text:
        binary = is_binary(name)
        array = np.empty(len(flat), object)
        array[:] = [string_bytes(value, name, binary, max_text_length) for value in flat]
    elif spec.dtype in _PYTHON_TYPES:
        array = _numbers(flat, spec.dtype)
    else:
        dtype = spec.dtype.name
        raise invalid(f"`{name}` must have a dtype that JSON can express. Received: {dtype}")
    return array.reshape(shape)


def _flattened(values, shape, name):
    """Returns the values of nested lists, which must have this shape."""
    flat = [values]
    for level, size in enumerate(shape):
        for value in flat:
            if not isinstance(value, list):
                raise invalid(
                    f"Input {name}: JSON Value: {abridge(value)} found at incorrect level: {level} "
                    f"in the JSON DOM. Expected at level: {len(shape)}"
                )
            if len(value) != size:
                raise invalid(
                    f"Input {name}: Encountered list at unexpected size: {len(value)} at level: "
                    f"{level} expected size: {size}"
                )
        flat = [inner for value in flat for inner in value]
    if any(isinstance(value, list) for value in flat):
        level = len(shape)
        raise invalid(
            f"Input {name}: Encountered list at unexpected level: {level} expected < {level}"
        )
    return flat


def string_bytes(value: Any, name: str, binary: bool, max_text_length: int) -> bytes:
    """Returns the bytes of a JSON string, or of an object with a string in base64.

    Raises:
        RequestError: If it is neither, is longer, or has no UTF-8 although it is not `binary`.
    """
    if isinstance(value, str):
        try:
            data = value.encode("utf-8")
        except UnicodeEncodeError:
            message = f"the surrogate pair in a string is invalid: {abridge(value)}"
            raise invalid(f"Input {name}: {message}") from None
        length = len(value)
    elif isinstance(value, dict) and is_base64(value):
        try:
            data = base64.b64decode(value[_BASE64], validate=True)
        except binascii.Error:
            raise invalid(f"Input {name}: unable to base64 decode {abridge(value)}") from None
        length = len(data) if binary else text_length(name, data)
    else:
        raise _type_error(value, tf.string)
    check_length(name, length, max_text_length)
    return data


def _numbers(flat, dtype):
    types = _PYTHON_TYPES[dtype]
    is_integer = dtype.is_integer
    # TensorFlow computes these properties anew at each access, which takes longer than the rest.
    least, most = (dtype.min, dtype.max) if is_integer else (None, None)
    for value in flat:
        if type(value) not in types or (is_integer and not least <= value <= most):
            raise _type_error(value, dtype)
    array = np.empty(len(flat), np.float64 if dtype.is_floating else dtype.as_numpy_dtype)
    try:
        for start in range(0, len(flat), _VALUES_AT_ONCE):
            array[start : start + _VALUES_AT_ONCE] = flat[start : start + _VALUES_AT_ONCE]
    except OverflowError:
        message = f"The numbers must be in the range of {dtype.name}. Received: a larger number"
        raise invalid(message) from None
    return array.astype(dtype.as_numpy_dtype, copy=False)


def _type_error(value, dtype):
    kind = _TYPES.get(type(value), "Number")
    message = f"JSON Value: {abridge(value)} Type: {kind} is not of expected type: {dtype.name}"
    return invalid(message)
