"""The Keras models, one task a file."""

from bert_tf.models.backbone import BertBackbone
from bert_tf.models.distillation_model import DistillationModel
from bert_tf.models.feature_extractor import BertFeatureExtractor
from bert_tf.models.layer_dropping import student_from_teacher
from bert_tf.models.masked_lm import BertMaskedLM, Candidate
from bert_tf.models.multiple_choice import BertMultipleChoice
from bert_tf.models.next_sentence import BertNextSentencePredictor
from bert_tf.models.position_extension import extend_positions
from bert_tf.models.question_answerer import Answer, BertQuestionAnswerer
from bert_tf.models.sentence_encoder import BertSentenceEncoder
from bert_tf.models.task_model import TaskModel
from bert_tf.models.text_classifier import BertTextClassifier
from bert_tf.models.token_classifier import BertTokenClassifier, TaggedSpan

__all__ = [
    "Answer",
    "BertBackbone",
    "BertFeatureExtractor",
    "BertMaskedLM",
    "BertMultipleChoice",
    "BertNextSentencePredictor",
    "BertQuestionAnswerer",
    "BertSentenceEncoder",
    "BertTextClassifier",
    "BertTokenClassifier",
    "Candidate",
    "DistillationModel",
    "TaggedSpan",
    "TaskModel",
    "extend_positions",
    "student_from_teacher",
]
