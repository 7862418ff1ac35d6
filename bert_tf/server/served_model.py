"""Loads and runs a SavedModel."""

import contextlib
import importlib.util
import itertools
import os
import tempfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import saved_model_pb2

from bert_tf import ops
from bert_tf.base.regular_files import open_regular, require_regular_below
from bert_tf.errors import UserError, user_error
from bert_tf.server.allowed_operations import ALLOWED_PREFIX
from bert_tf.server.graph_check import graph_problems
from bert_tf.server.signatures import DEFAULT_SIGNATURE, Signature, is_binary, signatures_of
from bert_tf.serving import SAVED_MODEL_FILE, read_description

_PADDING_FREE_OP = "BertTf>VarlenAttention"
# The operations of our tokenizers in tensorflow-text. Importing all of it takes 117 MiB.
_TEXT_LIBRARIES = {
    "FastBertNormalize": "_fast_bert_normalizer.so",
    "FastWordpieceTokenizeWithOffsets": "_fast_wordpiece_tokenizer.so",
}
_SHOWN_PROBLEMS = 5
_GRADIENT = "_gradient_op_type"  # TensorFlow's attribute that names a custom gradient
_WARM_UP_TEXT = "The first call is the slowest."


class ServedModel:
    """A loaded SavedModel, written by any program; its memory is released with the last reference.

    Attributes:
        signatures: The signatures by name.
        signature_def: The signatures in the form of TensorFlow Serving's metadata.
        padding_free: Whether the cost of a batch depends only on its tokens.
        description: The description that `bert_tf.serving.export` wrote; empty without one.

    Raises:
        UserError: If it cannot be loaded, or it is not trusted and would do more than compute.
    """

    def __init__(self, path: str | os.PathLike, trusted: bool = False):
        ops.library()  # registers the fused operations, where they are built
        saved_model, meta_graph = _read(path)
        problems = [
            problem for graph in saved_model.meta_graphs for problem in graph_problems(graph, path)
        ]
        if problems and not trusted:
            shown = "; ".join(problems[:_SHOWN_PROBLEMS])
            raise UserError(
                f"{path} must be a SavedModel that only computes. Received: {len(problems)} parts "
                f"that may access files, the network or other code: {shown}"
                f"{'; …' if len(problems) > _SHOWN_PROBLEMS else ''}. If you trust its author, "
                "serve it with --trust"
            )
        graph = meta_graph.graph_def
        nodes = itertools.chain(graph.node, *(one.node_def for one in graph.library.function))
        operations = {node.op for node in nodes}
        register_text_operations(operations)
        self.padding_free = _PADDING_FREE_OP in operations
        self.signatures = signatures_of(meta_graph)
        if not self.signatures:
            raise UserError(f"{path} must be a SavedModel with signatures. Received: no signatures")
        self.signature_def = {
            name: json_format.MessageToDict(
                definition,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
            )
            for name, definition in sorted(meta_graph.signature_def.items())
        }
        self.description = {}
        with contextlib.suppress(UserError):  # SavedModels of other programs have no description
            self.description = read_description(path)
        try:
            require_regular_below(path)
            # Not from a temporary copy: a model that reads files may do so with every request.
            if problems:
                self._loaded = tf.saved_model.load(os.fspath(path))
            else:
                self._loaded = _load_without_gradients(saved_model, path)
        except Exception as error:  # damaged files raise many types
            raise UserError(f"{path} must be a valid SavedModel. Received: {error}") from error

    def run(self, signature: Signature, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Computes the outputs of one batch, in any thread; strings are object arrays of bytes."""
        specs = signature.inputs.items()
        inputs = {name: tf.constant(arrays[name], spec.dtype) for name, spec in specs}
        outputs = self._loaded.signatures[signature.name](**inputs)
        return {name: outputs[name].numpy() for name in signature.outputs}

    def warm_up(self) -> None:
        """Calls the default signature once, if all its inputs are texts, one per row."""
        signature = self.signatures.get(DEFAULT_SIGNATURE)
        if signature is None or not signature.has_rows:
            return
        inputs = signature.inputs.items()
        if all(spec.is_text and len(spec.shape) == 1 and not is_binary(n) for n, spec in inputs):
            text = np.array([_WARM_UP_TEXT.encode()], object)
            self.run(signature, dict.fromkeys(signature.inputs, text))


def register_text_operations(operations: set[str]) -> None:
    """Loads the libraries of tensorflow-text that a graph with these operations may need."""
    others = {name for name in operations if not hasattr(tf.raw_ops, name)}
    others = {name for name in others if not name.startswith(ALLOWED_PREFIX)}
    package = importlib.util.find_spec("tensorflow_text")
    if package is None or not others <= _TEXT_LIBRARIES.keys():
        import tensorflow_text  # noqa: F401
    else:
        (folder,) = package.submodule_search_locations
        for name in others:
            tf.load_op_library(os.path.join(folder, "python", "ops", _TEXT_LIBRARIES[name]))


def _load_without_gradients(saved_model, path):
    """Loads a SavedModel from a copy without its custom gradients.

    TensorFlow never releases custom gradients, nor the functions and constants of their model. The
    copy also guarantees that the checked graph is loaded, even if the file has changed.
    """
    for meta_graph in saved_model.meta_graphs:
        library = meta_graph.graph_def.library
        del library.registered_gradients[:]
        for function in library.function:
            for node in function.node_def:
                node.attr.pop(_GRADIENT, None)  # otherwise TensorFlow logs a warning
    with tempfile.TemporaryDirectory(prefix="bert_tf_serve_") as folder:
        for name in ("variables", "assets", "fingerprint.pb"):
            if os.path.exists(os.path.join(path, name)):
                os.symlink(os.path.abspath(os.path.join(path, name)), os.path.join(folder, name))
        with open(os.path.join(folder, SAVED_MODEL_FILE), "wb") as file:
            file.write(saved_model.SerializeToString())
        return tf.saved_model.load(folder)


def _read(path):
    saved_model = saved_model_pb2.SavedModel()
    try:
        with open_regular(os.path.join(path, SAVED_MODEL_FILE)) as file:
            saved_model.ParseFromString(file.read())
    except (OSError, DecodeError) as error:
        raise UserError(f"{path} must be a valid SavedModel. Received: {error}") from None
    for meta_graph in saved_model.meta_graphs:
        if tf.saved_model.SERVING in meta_graph.meta_info_def.tags:
            return saved_model, meta_graph
    expected = f"be a SavedModel with the tag {tf.saved_model.SERVING!r}"
    raise user_error(path, expected, "no graph with this tag")
