"""How many fields a message has, before it takes any memory."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.framework import tensor_pb2

from bert_tf.server.message_size import count_fields

PROTO = tensor_pb2.TensorProto


def test_fields_are_counted_at_any_depth():
    proto = PROTO(dtype=7, string_val=[b"a", b"", b"b"])
    for _ in range(2):
        proto.tensor_shape.dim.add(size=300)
    # dtype, 3 strings, the shape, 2 dimensions, 2 sizes
    assert count_fields(proto.SerializeToString(), PROTO.DESCRIPTOR, 100) == 9
    packed = PROTO(float_val=np.zeros(1000), double_val=[1.0])
    assert count_fields(packed.SerializeToString(), PROTO.DESCRIPTOR, 100) == 2
    assert count_fields(b"", PROTO.DESCRIPTOR, 100) == 0


@pytest.mark.parametrize("part", [b"\x42\x00", b"\x7a\x00", b"\x12\x02\x12\x00", b"\x9d\x06abcd"])
def test_the_counting_stops(part):
    """Strings, messages, dimensions in shapes, and an unknown field of four bytes."""
    assert count_fields(part * 1_000_000, PROTO.DESCRIPTOR, 50) == 51


def test_any_bytes():
    random = np.random.default_rng(3)
    descriptor = tf.train.Example.DESCRIPTOR
    for _ in range(300):
        count = count_fields(random.bytes(random.integers(40)), descriptor, 1000)
        assert 0 <= count <= 40
    assert count_fields(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", descriptor, 9) == 1
