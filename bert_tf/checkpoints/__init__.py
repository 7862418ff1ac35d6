"""Reads and writes checkpoints: one module per format, one table of weight names for all."""

from bert_tf.checkpoints.conversion import convert, find_task_class
from bert_tf.checkpoints.loading import load_backbone, load_task_model
from bert_tf.checkpoints.saving import save_model

__all__ = ["convert", "find_task_class", "load_backbone", "load_task_model", "save_model"]
