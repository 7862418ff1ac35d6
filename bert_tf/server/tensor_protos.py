"""Converts between arrays and `TensorProto`s that a stranger may have sent.

A `TensorProto` may announce more values than it holds, because all that follow its last value are
equal to it, and it may hold other types than tensors of a model. So its dtype, its shape and its
size are checked before anything is made of it, and long lists are converted in steps, between which
other threads run.

Reference: tensorflow/core/framework/tensor.proto; tensor.cc, `Tensor::FromProto`;
tensorflow_serving/servables/tensorflow/predict_util.cc.
"""

import itertools
import math
from collections.abc import Mapping
from http import HTTPStatus

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.limits import Limits
from bert_tf.server.signatures import Signature, check_length, is_binary, text_length

_VALUES_AT_ONCE = 1 << 14
_SHOWN = 10  # names of inputs in an error
_SMALL_INTEGERS = (tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32)
_BITS = (tf.float16, tf.bfloat16)  # whose values are written as the bits of a uint16
# The field with the values of a dtype.
_FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int64: "int64_val",
    tf.uint32: "uint32_val",
    tf.uint64: "uint64_val",
    tf.bool: "bool_val",
    **dict.fromkeys(_SMALL_INTEGERS, "int_val"),
    **dict.fromkeys(_BITS, "half_val"),
}


def arrays_of_protos(
    protos: Mapping[str, tensor_pb2.TensorProto], signature: Signature, limits: Limits
) -> dict[str, np.ndarray]:
    """Converts the tensors of a request to the arrays of all inputs of the signature.

    Raises:
        RequestError: If inputs are missing or unknown, above a limit, or have another dtype or
            shape than in the signature.
    """
    if len(protos) != len(signature.inputs) or any(name not in protos for name in signature.inputs):
        received = ", ".join(itertools.islice(protos, _SHOWN))[:200] or "none"
        raise invalid(
            f"The inputs of signature {signature.name} must be {', '.join(signature.inputs)}. "
            f"Received: {received}"
        )
    return {
        name: _array(protos[name], name, spec, limits) for name, spec in signature.inputs.items()
    }


def announced_bytes(protos: Mapping[str, tensor_pb2.TensorProto]) -> int:
    """Returns about how many bytes the arrays of tensors would have, however few the tensors have.

    Example:
        >>> proto = tf.make_tensor_proto(0.5, shape=[1000])
        >>> proto.ByteSize(), announced_bytes({"x": proto})
        (15, 8000)
    """
    shapes = (proto.tensor_shape.dim for proto in protos.values())
    return 8 * sum(math.prod(dimension.size for dimension in shape) for shape in shapes)


def proto_of(array: np.ndarray) -> tensor_pb2.TensorProto:
    """Returns the message of an array; strings are an object array of bytes.

    Example:
        >>> tf.make_ndarray(proto_of(np.array([[1.5, 2]], np.float32))).tolist()
        [[1.5, 2.0]]
    """
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if dtype == tf.string:
        proto.string_val.extend(array.ravel().tolist())
    else:
        proto.tensor_content = array.tobytes()
    return proto


def _array(proto, name, spec, limits):
    if proto.dtype != spec.dtype.as_datatype_enum:
        raise invalid(f"`{name}` must be {spec}. Received: dtype {proto.dtype}, in another tensor")
    if not (spec.is_text or spec.dtype in _FIELDS):
        raise invalid(f"`{name}` must have a dtype of strings or numbers. Received: {spec}")
    if proto.tensor_shape.unknown_rank:
        raise invalid(f"`{name}` must be {spec}. Received: an unknown rank")
    shape = [dimension.size for dimension in proto.tensor_shape.dim]
    spec.require(name, shape)
    if min(shape, default=0) < 0:
        raise invalid(f"`{name}` must have no negative dimension. Received: {shape}")
    count = math.prod(shape)
    most = limits.max_elements if spec.is_text else limits.max_body // spec.dtype.size
    # Empty dimensions count as 1, because NumPy cannot make an array of [0, 2**62] either.
    if math.prod(max(1, size) for size in shape) > most:
        raise RequestError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"`{name}` must have at most {most} values. Received: shape {shape}.",
            flag="max_elements" if spec.is_text else "max_body_bytes",
        )
    read = _strings if spec.is_text else _numbers
    return read(proto, name, spec, count, limits).reshape(shape)


def _strings(proto, name, spec, count, limits):
    if proto.tensor_content:
        raise invalid(f"`{name}` must have its strings in string_val. Received: tensor_content")
    _check_count(name, len(proto.string_val), count)
    values = list(proto.string_val)
    is_bytes = is_binary(name)
    for value in values:
        length = len(value) if is_bytes else text_length(name, value)
        check_length(name, length, limits.max_text_length)
    array = np.empty(count, object)
    # `np.full` would copy the string for each value, without the zeros at its end.
    array[:] = values + (values[-1:] or [b""]) * (count - len(values))
    return array


def _numbers(proto, name, spec, count, limits):
    dtype = np.dtype(spec.dtype.as_numpy_dtype)
    if content := proto.tensor_content:
        if len(content) != count * dtype.itemsize:
            raise invalid(
                f"`{name}` must have {count * dtype.itemsize} bytes of tensor_content, because it "
                f"has {count} values of {spec.dtype.name}. Received: {len(content)} bytes"
            )
        # Another byte than 0 and 1 is true, but no valid value of a bool.
        if spec.dtype == tf.bool:
            return np.frombuffer(content, np.uint8) != 0
        return np.frombuffer(content, dtype)
    field = getattr(proto, _FIELDS[spec.dtype])
    _check_count(name, len(field), count)
    is_small = spec.dtype in _SMALL_INTEGERS
    kept = np.int32 if is_small else np.uint16 if spec.dtype in _BITS else dtype
    array = np.zeros(count, kept)
    try:
        for start in range(0, len(field), _VALUES_AT_ONCE):
            values = field[start : start + _VALUES_AT_ONCE]
            array[start : start + len(values)] = values
    except OverflowError:
        raise invalid(f"`{name}` must have the bits of {spec.dtype.name}. Received: more") from None
    if len(field):
        array[len(field) :] = array[len(field) - 1]
    if spec.dtype in _BITS:
        return array.view(dtype)
    if is_small and count and not spec.dtype.min <= array.min() <= array.max() <= spec.dtype.max:
        raise invalid(f"`{name}` must have values of {spec.dtype.name}. Received: larger ones")
    return array.astype(dtype, copy=False)


def _check_count(name, received, count):
    if received > count:
        raise invalid(f"`{name}` must have {count} values, as its shape. Received: {received}")
