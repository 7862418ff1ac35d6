"""Exports models as SavedModels for TF Serving and other programs."""

from bert_tf.serving.export import export
from bert_tf.serving.frozen_model import FrozenModel

__all__ = ["FrozenModel", "export"]
