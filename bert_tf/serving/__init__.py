"""Exports models as SavedModels for TF Serving and other programs."""

from bert_tf.serving.constant_graph_model import ConstantGraphModel
from bert_tf.serving.export import export

__all__ = ["ConstantGraphModel", "export"]
