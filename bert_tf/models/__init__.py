"""The Keras models, one task a file."""

from bert_tf.models.backbone import BertBackbone
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.models.task_model import TaskModel
from bert_tf.models.text_classifier import BertTextClassifier

__all__ = ["BertBackbone", "BertSentenceEncoder", "BertTextClassifier", "TaskModel"]
