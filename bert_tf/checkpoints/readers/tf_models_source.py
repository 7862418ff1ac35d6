"""Reads TensorFlow 2 object checkpoints of tensorflow/models (official/nlp), also from TF Hub.

Such a checkpoint holds a graph of objects. A variable is found by following attribute names from
the root, and the graph gives its key in the file. A variable can have several names: for example,
`layer_with_weights-4` of the functional encoder is also `_transformer_layers/0`.

Reference: tensorflow/core/protobuf/trackable_object_graph.proto; tensorflow/models
official/nlp/modeling.
"""

from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from bert_tf.base.file_errors import file_error
from bert_tf.base.tensor_source import RenamedSource
from bert_tf.checkpoints.readers.tensor_bundle import OBJECT_GRAPH_KEY, TensorBundle

# The graph of a BERT-large with its optimizer has less than 1 MB. The parsed graph needs up to 32
# times as much memory.
_MAX_GRAPH_BYTES = 4 * 2**20
# The possible paths of the encoder and the masked-LM head, depending on how the file was saved:
# `Checkpoint(encoder=…)`, `Checkpoint(model=…)` of a pre-training model or an encoder, a SavedModel
# of TF Hub, or the encoder itself.
_IN_SAVED_MODEL = "layer_with_weights-0"
_ROOTS = {
    "encoder": (
        *("encoder", "model/encoder", "model/encoder_network", "model"),
        *(_IN_SAVED_MODEL, ""),
    ),
    "masked_lm": ("masked_lm", "model/masked_lm", f"mlm/{_IN_SAVED_MODEL}/masked_lm"),
}
_MARKS = {"encoder": {"layer_with_weights-0", "_embedding_layer"}, "masked_lm": {"dense"}}
_DEPTH = 5  # encoder/_transformer_layers/0/_attention_layer/_query_dense/kernel
# Objects can refer to each other in cycles. A BERT-large needs a fifth of this.
_MAX_STEPS = 100_000
# Names in a BERT are shorter; in a malicious graph they could make very long paths.
_MAX_NAME_LENGTH = 100


class TfModelsSource(RenamedSource):
    """Reads one object checkpoint. A `TensorSource`.

    `aliases` are all names of a variable with its key in the file.

    Raises:
        CheckpointError: If the files are damaged or do not hold a BERT of tensorflow/models.
    """

    def __init__(self, prefix: str):
        self._bundle, names = TensorBundle(prefix), {}
        content = self._bundle.read_string(OBJECT_GRAPH_KEY, _MAX_GRAPH_BYTES)
        try:
            self._nodes = TrackableObjectGraph.FromString(content).nodes
        except DecodeError as error:
            raise file_error(prefix, "hold a valid object graph", error) from None
        if not len(self._nodes):
            raise file_error(prefix, "hold an object graph", "an empty one")
        self._known_children = {}
        self._steps = 0
        for root, places in _ROOTS.items():
            for place in places:
                node = self._walk(0, place)
                if node is not None and not _MARKS[root].isdisjoint(self._children(node)):
                    self._collect(node, root, _DEPTH, names)
                    break
        pooler = self._walk(0, "next_sentence.pooler_dense")
        if pooler is not None:
            self._collect(pooler, "next_sentence.pooler_dense", _DEPTH, names)
        super().__init__(self._bundle, names, "tf_models")
        if not names:
            objects = sorted(child.local_name for child in self._nodes[0].children)
            expected = "hold an encoder of tensorflow/models, as a SavedModel of TF Hub does"
            raise file_error(prefix, expected, f"the objects {objects}")

    def _children(self, node):
        if node not in self._known_children:
            self._known_children[node] = {
                child.local_name: child.node_id
                for child in self._nodes[node].children
                if 0 <= child.node_id < len(self._nodes)
                and len(child.local_name) <= _MAX_NAME_LENGTH
            }
        return self._known_children[node]

    def _walk(self, node, place):
        for name in place.split("/") if place else ():
            node = self._children(node).get(name)
            if node is None:
                return None
        return node

    def _collect(self, node, name, depth, names):
        self._steps += 1
        if self._steps > _MAX_STEPS:
            graph = f"The object graph of {self._bundle.path}"
            raise file_error(graph, f"have at most {_MAX_STEPS} paths", "more")
        for attribute in self._nodes[node].attributes:
            key = attribute.checkpoint_key
            if attribute.name == "VARIABLE_VALUE" and key in self._bundle.shapes:
                names[name] = key
        if depth:
            for child, child_node in self._children(node).items():
                self._collect(child_node, f"{name}/{child}", depth - 1, names)
