"""Readers of data files, and the tf.data pipelines over them."""

from bert_tf.data.classification_tasks import TASKS, ClassificationTask, TextExample

__all__ = ["TASKS", "ClassificationTask", "TextExample"]
