"""A SavedModel, loaded and ready to run."""

import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf.errors import UserError
from bert_tf.ops import native
from bert_tf.serving.description import read_description
from bert_tf.serving.server.signatures import DEFAULT_SIGNATURE, Signature, signatures_of

SAVED_MODEL_FILE = "saved_model.pb"
_PADDING_FREE_OP = "BertTf>VarlenAttention"
_WARM_UP_TEXT = "The first call is the slowest."


class ServedModel:
    """A SavedModel of any program, with strings or numbers in.

    Its memory is given back when the last reference is gone.

    Args:
        path: The directory of the SavedModel.

    Attributes:
        signatures: By name.
        signature_def: The signatures as TensorFlow Serving's metadata shows them.
        padding_free: Whether padding costs nothing, so that a batch costs its tokens alone.
        description: What `bert_tf.serving.export` wrote about the model, if it did.

    Raises:
        UserError: If there is no SavedModel that can be loaded here.
    """

    def __init__(self, path: str | os.PathLike):
        import tensorflow_text  # noqa: F401, registers its operations

        native.library()  # registers the fused operations, where they are built
        meta_graph = _serving_graph(path)
        self.padding_free = _PADDING_FREE_OP in _operations(meta_graph.graph_def)
        self.signatures = signatures_of(meta_graph)
        if not self.signatures:
            raise UserError(f"{path}: a SavedModel with signatures was expected. Received: none")
        self.signature_def = {
            name: json_format.MessageToDict(
                definition,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            for name, definition in sorted(meta_graph.signature_def.items())
        }
        self.description = _description(path)
        try:
            self._loaded = tf.saved_model.load(os.fspath(path))
        except Exception as error:  # a damaged file shows in many ways
            raise UserError(f"{path} cannot be loaded as a SavedModel: {error}") from error

    def run(self, signature: Signature, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes one batch. Any number of threads may call it.

        Args:
            signature: One of this model's.
            arrays: Of every input of the signature; strings as object arrays of `bytes`.

        Returns:
            The outputs by name.
        """
        function = self._loaded.signatures[signature.name]
        inputs = {
            name: tf.constant(arrays[name], spec.dtype) for name, spec in signature.inputs.items()
        }
        outputs = function(**inputs)
        return {name: outputs[name].numpy() for name in signature.outputs}

    def warm_up(self) -> None:
        """Calls the default signature once if it takes nothing but texts."""
        signature = self.signatures.get(DEFAULT_SIGNATURE)
        if signature is None or not signature.has_rows:
            return
        if all(spec.dtype == tf.string and len(spec.shape) == 1
               for spec in signature.inputs.values()):
            text = np.array([_WARM_UP_TEXT.encode()], object)
            self.run(signature, {name: text for name in signature.inputs})


def _serving_graph(path):
    saved_model = saved_model_pb2.SavedModel()
    try:
        with open(os.path.join(path, SAVED_MODEL_FILE), "rb") as file:
            saved_model.ParseFromString(file.read())
    except (OSError, DecodeError) as error:
        raise UserError(f"{path} cannot be loaded as a SavedModel: {error}") from None
    for meta_graph in saved_model.meta_graphs:
        if tf.saved_model.SERVING in meta_graph.meta_info_def.tags:
            return meta_graph
    raise UserError(f"{path}: a SavedModel with the tag 'serve' was expected. Received: none")


def _operations(graph_def):
    names = {node.op for node in graph_def.node}
    for function in graph_def.library.function:
        names |= {node.op for node in function.node_def}
    return names


def _description(path):
    try:
        return read_description(path)
    except UserError:  # a SavedModel of another program has none
        return {}
