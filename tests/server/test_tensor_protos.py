"""TensorProtos of a stranger: TensorFlow's values, or an error before any memory is taken."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from bert_tf.server.errors import RequestError
from bert_tf.server.limits import Limits
from bert_tf.server.signatures import Signature, TensorSpec
from bert_tf.server.tensor_protos import announced_bytes, arrays_of_protos, proto_of

Proto = tensor_pb2.TensorProto
LIMITS = Limits(max_body=4096, max_text_length=10, max_elements=100)
FIELDS = (
    *("float_val", "double_val", "half_val", "int_val", "int64_val", "uint32_val", "uint64_val"),
    *("bool_val", "string_val"),
)
NUMBERS = (
    *(tf.float32, tf.float64, tf.float16, tf.bfloat16, tf.bool),
    *(tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64),
)


def read(proto, dtype, shape=None, name="x"):
    signature = Signature("s", {name: TensorSpec(dtype, shape)}, {})
    return arrays_of_protos({name: proto}, signature, LIMITS)[name]


def proto_with(dtype, dims, **values):
    proto = Proto(dtype=dtype.as_datatype_enum, **values)
    for size in dims:
        proto.tensor_shape.dim.add(size=size)
    return proto


@pytest.mark.parametrize("dtype", [*NUMBERS, tf.string], ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("shape", [[], [1], [3], [2, 3], [0, 2]])
def test_values_are_tensorflows(dtype, shape):
    count = int(np.prod(shape))
    values = np.arange(count).reshape(shape)
    if dtype == tf.string:
        array = np.array([b"a\xc3\xa9"[: n % 2 + 1 + n % 2] for n in range(count)], object)
        array = array.reshape(shape)
    else:
        array = (values % 2 if dtype == tf.bool else values).astype(dtype.as_numpy_dtype)
    # They come as lists of values, as tensor_content, and as this server writes them.
    listed = tf.make_tensor_proto(array.tolist(), dtype=dtype, shape=shape)
    for proto in (listed, tf.make_tensor_proto(array, dtype=dtype), proto_of(array)):
        found = read(proto, dtype, tuple(shape))
        assert found.dtype == array.dtype and found.shape == array.shape
        assert found.tolist() == array.tolist() == tf.make_ndarray(proto).tolist()


def test_special_numbers():
    values = [np.nan, np.inf, -np.inf, -0.0]
    for dtype in (tf.float32, tf.float64, tf.float16, tf.bfloat16):
        found = read(tf.make_tensor_proto(values, dtype), dtype, (None,))
        assert np.isnan(float(found[0])) and found[1:].tolist() == values[1:]


@pytest.mark.parametrize("dtype, field", [(tf.int32, "int_val"), (tf.float32, "float_val")])
def test_the_last_value_stands_for_the_rest(dtype, field):
    found = read(proto_with(dtype, [2, 3], **{field: [4, 5]}), dtype)
    assert found.tolist() == [[4, 5, 5], [5, 5, 5]]
    assert read(proto_with(dtype, [2]), dtype).tolist() == [0, 0]  # as in TensorFlow's C++
    strings = read(proto_with(tf.string, [3], string_val=[b"b", b"a\0"]), tf.string)
    assert strings.tolist() == [b"b", b"a\0", b"a\0"]
    assert strings[1] is strings[2]  # otherwise 100 kB could become 6 GB


HOSTILE = {
    "large": (proto_with(tf.float32, [2**40], float_val=[1]), tf.float32, "at most 1024 values"),
    "product": (proto_with(tf.float32, [2**31, 2**31, 2**31]), tf.float32, "at most 1024 values"),
    "large and empty": (proto_with(tf.float32, [0, 2**62]), tf.float32, "at most 1024 values"),
    "strings": (proto_with(tf.string, [101], string_val=[b""]), tf.string, "at most 100 values"),
    "negative": (proto_with(tf.float32, [-1, -1], float_val=[1]), tf.float32, "negative"),
    "dimensions": (proto_with(tf.float32, [1] * 65), tf.float32, "must be float32"),
    "more values": (proto_with(tf.int32, [1], int_val=[1, 2]), tf.int32, "must have 1 values"),
    "more strings": (proto_with(tf.string, [1], string_val=[b""] * 2), tf.string, "1 values"),
    "content": (proto_with(tf.int32, [2], tensor_content=b"1234567"), tf.int32, "8 bytes of"),
    "content of strings": (
        proto_with(tf.string, [1], tensor_content=b"\1a"),
        tf.string,
        "string_val",
    ),
    "no text": (proto_with(tf.string, [1], string_val=[b"\xff"]), tf.string, "UTF-8"),
    "long": (proto_with(tf.string, [1], string_val=[b"a" * 11]), tf.string, "10 characters"),
    "int8": (proto_with(tf.int8, [1], int_val=[128]), tf.int8, "values of int8"),
    "half": (proto_with(tf.float16, [1], half_val=[-1]), tf.float16, "the bits of"),
    "another": (proto_with(tf.int64, [1], int64_val=[1]), tf.int32, "must be int32"),
    "variant": (proto_with(tf.variant, [1]), tf.variant, "strings or numbers"),
    "resource": (proto_with(tf.resource, [1]), tf.resource, "strings or numbers"),
    "as a resource": (proto_with(tf.resource, [1]), tf.float32, "must be float32"),
    "unknown dtype": (Proto(), tf.float32, "must be float32"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name):
    proto, dtype, message = HOSTILE[name]
    with pytest.raises(RequestError, match=message):
        read(proto, dtype)


def test_unknown_rank_and_bytes_that_are_no_bool():
    proto = proto_with(tf.float32, [])
    proto.tensor_shape.unknown_rank = True
    with pytest.raises(RequestError, match="unknown rank"):
        read(proto, tf.float32)
    found = read(proto_with(tf.bool, [3], tensor_content=b"\0\2\xff"), tf.bool)
    assert found.view(np.uint8).tolist() == [0, 1, 1]
    assert read(proto_with(tf.string, [1], string_val=[b"\xff"]), tf.string, name="examples")[0]


def test_announced_bytes():
    large = proto_with(tf.string, [2**20, 3], string_val=[b"a"])
    assert announced_bytes({"x": large, "y": proto_with(tf.bool, [])}) == 8 * (3 * 2**20 + 1)


def test_names():
    signature = Signature("s", {"x": TensorSpec(tf.int32, None)}, {})
    for protos in ({}, {"y": Proto()}, {"x": Proto(), "y": Proto()}):
        with pytest.raises(RequestError, match="must be x. Received: "):
            arrays_of_protos(protos, signature, LIMITS)


def test_random_messages():
    """Each is refused, or has the signature's dtype and little memory."""
    random = np.random.default_rng(1)
    dtypes = (*NUMBERS, tf.string)
    read_count = 0
    for number in range(4000):
        dtype = dtypes[number % len(dtypes)]
        field = random.choice(FIELDS)
        proto = proto_with(dtype, random.choice([-1, 0, 1, 2, 3, 2**33], random.integers(4)))
        values = random.integers(0, 3, random.integers(5)).tolist()
        if field == "string_val":
            values = [random.bytes(value) for value in values]
        getattr(proto, field).extend(values)
        data = bytearray(proto.SerializeToString())
        if data and random.integers(3) == 0:
            data[random.integers(len(data))] = random.integers(256)
        try:
            found = read(Proto.FromString(bytes(data)), dtype)
        except (RequestError, DecodeError):
            continue
        expected = np.dtype(object) if dtype == tf.string else np.dtype(dtype.as_numpy_dtype)
        assert found.dtype == expected and found.nbytes <= 4096
        read_count += 1
    assert read_count > 100
