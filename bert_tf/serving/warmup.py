"""Writes warm-up requests, which TF Serving runs when it loads a model.

The first request of a kind takes much longer than later ones. TF Serving reads
`assets.extra/tf_serving_warmup_requests`: a TFRecord file of at most 1,000 `PredictionLog`s.

The package tensorflow-serving-api defines this message, but it pins a TensorFlow version and
depends on gRPC. Therefore the four small messages are declared here, with the original names,
numbers and types of the fields. Only the fields that are written are declared; protobuf's wire
format does not need the others.

References: tensorflow/serving `g3doc/saved_model_warmup.md`, `apis/prediction_log.proto`,
`apis/predict.proto`, `apis/model.proto`.
"""

import functools
import os

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

WARMUP_FILE = "tf_serving_warmup_requests"

# Differs from the original package, because a process may import both.
_PACKAGE = "bert_tf.warmup"
_FIELD = descriptor_pb2.FieldDescriptorProto


def write_warmup_requests(
    path: str | os.PathLike, requests: list[tuple[str, dict[str, tf.Tensor]]]
) -> None:
    """Writes a file of warm-up requests.

    Args:
        path: The file.
        requests: For each request, the signature's name and the inputs by name.
    """
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(signature, inputs))


def prediction_log(signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """A serialised `PredictionLog` of a request to `Predict`.

    It does not name the model: TF Serving uses the model that the file belongs to.

    Args:
        signature: The signature's name.
        inputs: The inputs by name.
    """
    log = _message_class("PredictionLog")()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        # As bytes, because the class of the message in this pool is not TensorFlow's class.
        request.inputs[name].ParseFromString(tf.make_tensor_proto(value).SerializeToString())
    return log.SerializeToString()


@functools.cache
def _message_class(name):
    pool = descriptor_pool.DescriptorPool()
    _add_with_dependencies(pool, tensor_pb2.DESCRIPTOR)
    file = descriptor_pb2.FileDescriptorProto(
        name="bert_tf/warmup.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[tensor_pb2.DESCRIPTOR.name],
    )
    _add_message(file, "ModelSpec", signature_name=(3, _FIELD.TYPE_STRING))
    request = _add_message(file, "PredictRequest", model_spec=(1, "ModelSpec"))
    # Protobuf defines `map<string, TensorProto> inputs = 2` as this repeated message.
    entry = request.nested_type.add(name="InputsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_FIELD.TYPE_STRING, label=_FIELD.LABEL_OPTIONAL)
    entry.field.add(
        name="value",
        number=2,
        type=_FIELD.TYPE_MESSAGE,
        type_name=".tensorflow.TensorProto",
        label=_FIELD.LABEL_OPTIONAL,
    )
    request.field.add(
        name="inputs",
        number=2,
        type=_FIELD.TYPE_MESSAGE,
        type_name=f".{_PACKAGE}.PredictRequest.InputsEntry",
        label=_FIELD.LABEL_REPEATED,
    )
    _add_message(file, "PredictLog", request=(1, "PredictRequest"))
    _add_message(file, "PredictionLog", predict_log=(6, "PredictLog"))
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


def _add_message(file, name, **fields):
    message = file.message_type.add(name=name)
    for field, (number, kind) in fields.items():
        added = message.field.add(name=field, number=number, label=_FIELD.LABEL_OPTIONAL)
        if isinstance(kind, str):
            added.type, added.type_name = _FIELD.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        else:
            added.type = kind
    return message


def _add_with_dependencies(pool, descriptor):
    """Adds TensorFlow's descriptors; a file can only be added after the files that it imports."""
    for dependency in descriptor.dependencies:
        _add_with_dependencies(pool, dependency)
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    pool.Add(file)
