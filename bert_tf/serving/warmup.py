"""Writes warm-up requests, which TF Serving runs when it loads a model.

The first request of a kind takes much longer than later ones. TF Serving reads
`assets.extra/tf_serving_warmup_requests`: a TFRecord file of at most 1,000 `PredictionLog`s.

The package tensorflow-serving-api defines this message, but it pins a TensorFlow version and
depends on gRPC. Therefore the few fields that are needed are written in protobuf's wire format.

References: tensorflow/serving `g3doc/saved_model_warmup.md`, `apis/prediction_log.proto`,
`apis/predict.proto`, `apis/model.proto`.
"""

import os

import tensorflow as tf

WARMUP_FILE = "tf_serving_warmup_requests"


def write_warmup_requests(
    path: str | os.PathLike, requests: list[tuple[str, dict[str, tf.Tensor]]]
) -> None:
    """Writes a file of warm-up requests, each a signature's name and its inputs by name."""
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(signature, inputs))


def prediction_log(signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """Returns a serialised `PredictionLog` of a request to `Predict`, to the file's model."""
    request = _field(1, _field(3, signature.encode()))  # model_spec.signature_name
    for name, value in inputs.items():
        tensor = tf.make_tensor_proto(value).SerializeToString()
        request += _field(2, _field(1, name.encode()) + _field(2, tensor))  # inputs[name]
    return _field(6, _field(1, request))  # predict_log.request


def _field(number: int, content: bytes) -> bytes:
    """Returns a field of protobuf's wire format whose content has a length."""
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])
