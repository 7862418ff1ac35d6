"""Exports models as SavedModels for TF Serving and other programs."""

from bert_tf.serving.constant_graph_model import ConstantGraphModel
from bert_tf.serving.description import read_description
from bert_tf.serving.export import export
from bert_tf.serving.litert import export_litert
from bert_tf.serving.versions import SAVED_MODEL_FILE, find_versions, is_model

__all__ = [
    "SAVED_MODEL_FILE",
    "ConstantGraphModel",
    "export",
    "export_litert",
    "find_versions",
    "is_model",
    "read_description",
]
