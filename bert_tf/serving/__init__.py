"""SavedModels for TF Serving and other engines."""

from bert_tf.serving.export import export

__all__ = ["export"]
