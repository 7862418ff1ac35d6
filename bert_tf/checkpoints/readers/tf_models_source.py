"""TensorFlow 2 object checkpoints of tensorflow/models (official/nlp), and TF Hub's of that origin.

Such a file holds a graph of objects; a variable is found by walking attribute names from the root,
and has the key that the graph says. So one variable is found under every name it has in the graph:
`layer_with_weights-4` of the functional encoder, or `_transformer_layers/0`.

Reference: tensorflow/core/protobuf/trackable_object_graph.proto; tensorflow/models
official/nlp/modeling.
"""

import numpy as np

from bert_tf.checkpoints.readers.tensor_bundle import TensorBundle
from bert_tf.checkpoints.readers.tf1_source import OBJECT_GRAPH_KEY
from bert_tf.errors import CheckpointError

# That of a BERT-large with its optimizer has less than 1 MB; parsed it takes up to 32 times that.
_MAX_GRAPH_BYTES = 4 * 2**20
# Where the encoder and the heads hang, by what the file was saved with: `Checkpoint(encoder=…)`,
# `Checkpoint(model=…)` around a pre-training model or an encoder, or the encoder itself.
_ROOTS = {
    "encoder": ("encoder", "model/encoder", "model/encoder_network", "model", ""),
    "masked_lm": ("masked_lm", "model/masked_lm"),
}
_MARKS = {"encoder": "layer_with_weights-0 _embedding_layer", "masked_lm": "dense"}
# encoder/_transformer_layers/0/_attention_layer/_query_dense/kernel
_DEPTH = 5
# Objects refer to each other in circles; a real BERT-large needs a fifth of this.
_MOST_STEPS = 100_000
# No part of a BERT has a longer name; a walk through a hostile graph would make long paths of it.
_LONGEST_NAME = 100


class TfModelsSource:
    """Reads one object checkpoint. A `TensorSource`.

    Args:
        prefix: The path without `.index`.

    Raises:
        CheckpointError: If the files are damaged, or hold no BERT of tensorflow/models.
    """

    format = "tf_models"

    def __init__(self, prefix: str):
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import trackable_object_graph_pb2

        self.path = prefix
        self._bundle = TensorBundle(prefix)
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        try:
            graph.ParseFromString(self._bundle.read_string(OBJECT_GRAPH_KEY, _MAX_GRAPH_BYTES))
        except DecodeError as error:
            raise CheckpointError(f"{prefix}: the object graph is damaged ({error})") from None
        self._nodes = graph.nodes
        if not len(self._nodes):
            raise CheckpointError(f"{prefix}: expected an object graph. Received: an empty one")
        stored = self._bundle.shapes
        self._known_children = {}
        self._keys = {}
        self._steps = 0
        for root, places in _ROOTS.items():
            for place in places:
                node = self._walk(0, place)
                if node is not None and self._looks_like(node, root):
                    self._collect(node, root, stored, _DEPTH)
                    break
        pooler = self._walk(0, "next_sentence.pooler_dense")
        if pooler is not None:
            self._collect(pooler, "next_sentence.pooler_dense", stored, _DEPTH)
        # Names of one variable, for whoever wants to know which variables were not used.
        self.aliases = self._keys
        self.shapes = {name: stored[key] for name, key in self._keys.items()}
        if not self.shapes:
            raise CheckpointError(
                f"{prefix}: expected an encoder of tensorflow/models. Received: the objects "
                f"{sorted(child.local_name for child in self._nodes[0].children)}"
            )

    def read(self, name: str) -> np.ndarray:
        return self._bundle.read(self._keys[name])

    def _children(self, node):
        if node not in self._known_children:
            self._known_children[node] = {
                child.local_name: child.node_id
                for child in self._nodes[node].children
                if 0 <= child.node_id < len(self._nodes) and len(child.local_name) <= _LONGEST_NAME
            }
        return self._known_children[node]

    def _walk(self, node, place):
        for name in place.split("/") if place else ():
            node = self._children(node).get(name)
            if node is None:
                return None
        return node

    def _looks_like(self, node, root):
        children = self._children(node)
        return any(mark in children for mark in _MARKS[root].split())

    def _collect(self, node, name, stored, depth):
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise CheckpointError(f"{self.path}: the object graph is too tangled for a BERT")
        for attribute in self._nodes[node].attributes:
            if attribute.name == "VARIABLE_VALUE" and attribute.checkpoint_key in stored:
                self._keys[name] = attribute.checkpoint_key
        if depth:
            for child, child_node in self._children(node).items():
                self._collect(child_node, f"{name}/{child}", stored, depth - 1)
