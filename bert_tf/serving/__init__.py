"""SavedModels for TF Serving and other engines."""

from bert_tf.serving.export import export
from bert_tf.serving.frozen_model import FrozenModel

__all__ = ["FrozenModel", "export"]
