"""Exports models as SavedModels for TF Serving and other programs."""

from bert_tf.lazy_names import lazy_names
from bert_tf.serving.constant_graph_model import ConstantGraphModel
from bert_tf.serving.export import export

__all__ = ["ConstantGraphModel", "export"]
__getattr__, _, _ = lazy_names(
    __name__, {}, moved={"FrozenModel": "bert_tf.serving:ConstantGraphModel"}
)
