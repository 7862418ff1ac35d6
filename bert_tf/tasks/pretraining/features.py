"""Serializes pre-training examples as `tf.train.Example`s.

TensorFlow is not used: it would take seconds and hundreds of megabytes in every worker process.

Reference: google-research/bert `create_pretraining_data.py`; tensorflow/core/example/example.proto
and feature.proto; protobuf's encoding of packed repeated fields.
"""

import functools
import struct
from collections.abc import Mapping, Sequence

from bert_tf.tasks.pretraining.examples import PretrainingExample

_LENGTH_DELIMITED = 2  # a type of protobuf fields
_FLOAT_LIST, _INT64_LIST = 2, 3  # field numbers in message Feature


def example_features(
    example: PretrainingExample, max_seq_length: int, max_predictions_per_seq: int
) -> dict[str, list[int] | list[float]]:
    """Returns the features of an example by name, padded with zeros."""
    padding = [0] * (max_seq_length - len(example.token_ids))
    number = len(example.masked_positions)
    unused = [0] * (max_predictions_per_seq - number)
    return {
        "input_ids": example.token_ids + padding,
        "input_mask": [1] * len(example.token_ids) + padding,
        "segment_ids": example.segment_ids + padding,
        "masked_lm_positions": example.masked_positions + unused,
        "masked_lm_ids": example.masked_ids + unused,
        "masked_lm_weights": [1.0] * number + [0.0] * len(unused),
        "next_sentence_labels": [int(example.is_random_next)],
    }


def serialize_features(features: Mapping[str, Sequence[int] | Sequence[float]]) -> bytes:
    """Serializes features, each of floats or of integers from 0, as a `tf.train.Example`.

    Example:
        >>> serialize_features({"x": [1]}).hex()
        '0a0c0a0a0a017812051a030a0101'
    """
    entries = []
    for name, values in features.items():
        if values and isinstance(values[0], float):
            kind, packed = _FLOAT_LIST, struct.pack(f"<{len(values)}f", *values)
        else:
            kind, packed = _INT64_LIST, b"".join(map(_varint, values))
        feature = _field(kind, _field(1, packed))
        entries.append(_field(1, _field(1, name.encode()) + _field(2, feature)))
    return _field(1, b"".join(entries))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


@functools.lru_cache(maxsize=1 << 18)
def _varint(value: int) -> bytes:
    """Encodes seven bits per byte, the lowest first; the top bit means that more bytes follow."""
    if value < 0:
        raise ValueError(f"Features must be at least 0. Received: {value}")
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
