"""Requests that TF Serving sends to a model itself, before it lets others in.

The first request of a kind costs a server many times what later ones do. TF Serving reads
`assets.extra/tf_serving_warmup_requests`: a TFRecord file of at most 1,000 `PredictionLog`s.

That message is defined in the package tensorflow-serving-api, which pins a TensorFlow version and
brings gRPC. To write four small messages neither is needed: they are declared here, with the names,
numbers and types of the original's fields, and protobuf does the rest. Only the fields that are
written are declared; protobuf's wire format needs no others.

References: tensorflow/serving `g3doc/saved_model_warmup.md`, `apis/prediction_log.proto`,
`apis/predict.proto`, `apis/model.proto`.
"""

import functools
import os

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from tensorflow.core.framework import tensor_pb2

WARMUP_FILE = "tf_serving_warmup_requests"

# Not the original's package: a process may import both.
_PACKAGE = "bert_tf.warmup"
_FIELD = descriptor_pb2.FieldDescriptorProto


def write_warmup_requests(
    path: str | os.PathLike, requests: list[tuple[str, dict[str, tf.Tensor]]]
) -> None:
    """Writes the file.

    Args:
        path: Where to.
        requests: Of each, the signature's name and the inputs by name.
    """
    with tf.io.TFRecordWriter(os.fspath(path)) as writer:
        for signature, inputs in requests:
            writer.write(prediction_log(signature, inputs))


def prediction_log(signature: str, inputs: dict[str, tf.Tensor]) -> bytes:
    """A serialised `PredictionLog` of a request to `Predict`.

    The model's name is left out: TF Serving asks the model that the file lies in.

    Args:
        signature: The signature's name.
        inputs: The inputs by name.
    """
    log = _message_class("PredictionLog")()
    request = log.predict_log.request
    request.model_spec.signature_name = signature
    for name, value in inputs.items():
        # By way of bytes: this pool's class of the message is another one than TensorFlow's.
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
    # `map<string, TensorProto> inputs = 2` is, by protobuf's definition, this repeated message.
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
    """TensorFlow's own descriptors; a file may only be added after those that it imports."""
    for dependency in descriptor.dependencies:
        _add_with_dependencies(pool, dependency)
    file = descriptor_pb2.FileDescriptorProto()
    descriptor.CopyToProto(file)
    pool.Add(file)
