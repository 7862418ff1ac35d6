"""TensorFlow Serving's JSON: request bodies to arrays, arrays to answers.

Row format: `{"instances": [row, ...]}` -> `{"predictions": [row, ...]}`. Column format:
`{"inputs": {name: rows}}` -> `{"outputs": {name: rows}}`. Where there is one input or one output,
its name is left out.

Reference: tensorflow_serving/g3doc/api_rest.md; util/json_tensor.cc.
"""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.serving.server.errors import RequestError, invalid
from bert_tf.serving.server.signatures import DEFAULT_SIGNATURE, Signature, TensorSpec, is_binary

ROWS, COLUMNS = "instances", "inputs"
_ANSWERS = {ROWS: "predictions", COLUMNS: "outputs"}
_BASE64 = "b64"
_VALUES_AT_ONCE = 1 << 14  # are written as JSON; as Python's objects they take 30 times as much
_SHOWN = 256  # characters of a value in an error; kMaxJsonDebugStringBytes
_TYPES = {dict: "Object", list: "Array", str: "String", bool: "Boolean", type(None): "Null"}


class PredictRequest(NamedTuple):
    """A request as it came.

    Attributes:
        signature_name: The signature it asks for.
        format: `ROWS` or `COLUMNS`.
        values: What stands under that key.
    """

    signature_name: str
    format: str
    values: Any


def parse_predict(body: bytes) -> PredictRequest:
    """Reads a body.

    Raises:
        RequestError: If it is no JSON object of the form above.
    """
    if not body:
        raise invalid("JSON Parse error: The document is empty")
    try:
        document = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(f"JSON Parse error: not UTF-8: {error.reason}, byte {error.start}") from None
    except RecursionError:
        raise invalid("JSON Parse error: nested too deeply") from None
    except ValueError as error:
        raise invalid(f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {_shown(document)} Is not object")
    name = document.get("signature_name", "")
    if not isinstance(name, str):
        raise invalid(
            f"JSON Value: {_shown(document)} not formatted correctly. 'signature_name' key must be "
            "a string value."
        )
    formats = [key for key in (ROWS, COLUMNS) if key in document]
    if len(formats) > 1:
        raise invalid(
            f"JSON Value: {_shown(document)} Not formatted correctly expecting only one of "
            "'inputs' or 'instances' keys to exist"
        )
    if not formats:
        raise invalid("Missing 'inputs' or 'instances' key")
    return PredictRequest(name or DEFAULT_SIGNATURE, formats[0], document[formats[0]])


def arrays_of(
    request: PredictRequest, signature: Signature, max_text_length: int
) -> dict[str, np.ndarray]:
    """The arrays of every input.

    Args:
        request: From `parse_predict`.
        signature: The signature that it asks for.
        max_text_length: The most characters of one string.

    Raises:
        RequestError: If inputs are missing or unknown, or values of another type or shape.
    """
    columns = (_columns_of_rows if request.format == ROWS else _columns)(request.values, signature)
    return {
        name: _array(columns[name], spec, name, max_text_length)
        for name, spec in signature.inputs.items()
    }


def answer_parts(format: str, outputs: Mapping[str, np.ndarray], has_rows: bool) -> Iterator[str]:
    """The answer to a request, as JSON in parts: a large one never is in memory as a whole.

    Args:
        format: The request's.
        outputs: By name.
        has_rows: Whether every output has a row an example; the row format needs it.

    Raises:
        RequestError: If outputs without rows were asked for in rows; before the first part.
    """
    if format == ROWS and not has_rows:
        raise invalid("The outputs do not have a row an example: use the column format, 'inputs'")
    return _answer_parts(format, outputs)


def _answer_parts(format, outputs):
    yield f'{{"{_ANSWERS[format]}": '
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        yield from _array_parts(array, is_binary(name))
    elif format == COLUMNS:
        yield from _object_parts(outputs)
    else:
        yield "["
        rows = len(next(iter(outputs.values())))
        step = max(1, _VALUES_AT_ONCE * rows // max(1, sum(map(np.size, outputs.values()))))
        for start in range(0, rows, step):
            yield ", " if start else ""
            part = {name: array[start : start + step] for name, array in outputs.items()}
            if step == 1:
                yield from _object_parts({name: array[0, ...] for name, array in part.items()})
            else:
                values = [json_values(array, is_binary(name)) for name, array in part.items()]
                yield _json([dict(zip(part, row)) for row in zip(*values)])[1:-1]
        yield "]"
    yield "}\n"


def _object_parts(arrays):
    for number, (name, array) in enumerate(arrays.items()):
        yield ("{" if number == 0 else ", ") + _json(name) + ": "
        yield from _array_parts(array, is_binary(name))
    yield "}"


def _array_parts(array, binary):
    if array.size <= _VALUES_AT_ONCE:
        yield _json(json_values(array, binary))
        return
    yield "["
    step = max(1, _VALUES_AT_ONCE * len(array) // array.size)
    for start in range(0, len(array), step):
        yield ", " if start else ""
        if step == 1 and array.ndim > 1:
            yield from _array_parts(array[start], binary)
        else:
            yield _json(json_values(array[start : start + step], binary))[1:-1]
    yield "]"


def _json(values):
    return json.dumps(values, ensure_ascii=False)


def json_values(array: np.ndarray, binary: bool = False) -> Any:
    """Nested lists of an array; floats as short as their type allows, strings as text."""
    if array.dtype == object:
        return _strings(array.tolist(), binary)
    if array.dtype.kind == "f" and array.dtype != np.float64:
        # Of float32 0.2: "0.2", not the 0.20000000298 that it is as a double.
        return array.astype(np.float32).astype(str).astype(np.float64).tolist()
    return array.tolist()


def _strings(values, binary):
    if isinstance(values, list):
        return [_strings(value, binary) for value in values]
    if binary:
        return {_BASE64: base64.b64encode(values).decode("ascii")}
    return values.decode("utf-8", "replace")


def _columns_of_rows(rows, signature):
    if not isinstance(rows, list):
        raise invalid(f"JSON Value: {_shown(rows)} Expecting 'instances' to be an list/array")
    if not rows:
        raise invalid("No values in 'instances' array")
    names = list(signature.inputs)
    if not signature.has_rows:
        raise invalid(
            f"Signature {signature.name} does not take a row an example: use the column format, "
            "'inputs'"
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
            raise invalid(f"Expecting object but got {_type(row)} at item {number} of input list")
        if row.keys() != signature.inputs.keys():
            raise invalid(
                f"Failed to process element: {number} of 'instances' list. JSON object: "
                f"{_shown(row)} keys must be equal to: {','.join(names)}"
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
    for name in names:
        if name not in values:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    unknown = sorted(set(values) - set(names))
    if unknown:
        raise invalid(
            f"Unknown named input: {_shown(unknown)} in 'inputs' object. Expected: "
            f"{', '.join(names)}"
        )
    return values


def _is_named(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return len(value) == 1 and isinstance(value.get(_BASE64), str)


def _array(values, spec: TensorSpec, name, max_text_length):
    shape, inner = [], values
    while isinstance(inner, list):
        shape.append(len(inner))
        if not inner:
            break
        inner = inner[0]
    flat = []
    try:
        _flatten(values, shape, 0, flat)
    except RequestError as error:
        raise invalid(f"Input {name}: {error.message}") from None
    convert = _CONVERTERS.get(spec.dtype)
    if convert is None:
        raise invalid(f"Input {name}: type {spec.dtype.name} cannot be given in JSON")
    if spec.dtype == tf.string:
        binary = is_binary(name)
        flat = [_bytes(value, name, binary, max_text_length) for value in flat]
        array = np.empty(len(flat), object)
        array[:] = flat
    else:
        array = convert(flat, spec.dtype)
    return array.reshape(shape)


def _flatten(value, shape, level, flat):
    if not isinstance(value, list):
        if level != len(shape):
            raise invalid(
                f"JSON Value: {_shown(value)} found at incorrect level: {level} in the JSON DOM. "
                f"Expected at level: {len(shape)}"
            )
        flat.append(value)
        return
    if level >= len(shape):
        raise invalid(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise invalid(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: "
            f"{shape[level]}"
        )
    if level == len(shape) - 1:
        for item in value:
            if isinstance(item, list):
                raise invalid(
                    f"Encountered list at unexpected level: {level + 1} expected < {len(shape)}"
                )
        flat.extend(value)
        return
    for item in value:
        _flatten(item, shape, level + 1, flat)


def _bytes(value, name, binary, max_text_length):
    if isinstance(value, str):
        try:
            data = value.encode("utf-8")
        except UnicodeEncodeError:
            raise invalid(
                f"Input {name}: the surrogate pair in a string is invalid: {_shown(value)}"
            ) from None
        length = len(value)
    elif isinstance(value, dict) and _is_base64(value):
        try:
            data = base64.b64decode(value[_BASE64], validate=True)
            length = len(data) if binary else len(data.decode("utf-8"))
        except binascii.Error:
            raise invalid(f"Input {name}: unable to base64 decode {_shown(value)}") from None
        except UnicodeDecodeError as error:
            raise invalid(
                f"Input {name}: text in UTF-8 was expected. Received: {_shown(value)}, "
                f"{error.reason} at byte {error.start}"
            ) from None
    else:
        raise _type_error(value, tf.string)
    if length > max_text_length:
        raise invalid(
            f"Input {name}: at most {max_text_length} characters were expected. Received: {length}"
        )
    return data


def _numbers(flat, dtype):
    for value in flat:
        if type(value) not in (int, float):
            raise _type_error(value, dtype)
    try:
        return np.array(flat, np.float64).astype(dtype.as_numpy_dtype)
    except OverflowError:
        raise invalid(f"A number is too large for {dtype.name}") from None


def _integers(flat, dtype):
    for value in flat:
        if type(value) is not int or not dtype.min <= value <= dtype.max:
            raise _type_error(value, dtype)
    return np.array(flat, dtype.as_numpy_dtype)


def _booleans(flat, dtype):
    for value in flat:
        if type(value) is not bool:
            raise _type_error(value, dtype)
    return np.array(flat, bool)


_CONVERTERS = {
    tf.string: _bytes,
    tf.bool: _booleans,
    tf.float32: _numbers,
    tf.float64: _numbers,
    **dict.fromkeys(
        (tf.int8, tf.uint8, tf.int16, tf.int32, tf.uint32, tf.int64, tf.uint64), _integers
    ),
}


def _type_error(value, dtype):
    return invalid(
        f"JSON Value: {_shown(value)} Type: {_type(value)} is not of expected type: {dtype.name}"
    )


def _type(value):
    return _TYPES.get(type(value), "Number")


def _shown(value):
    """The beginning of a value as JSON."""
    text = ""
    for part in json.JSONEncoder().iterencode(value):
        text += part[: _SHOWN + 1]
        if len(text) > _SHOWN:
            return text[:_SHOWN] + "…"
    return text
