"""Metrics for use during training, and scores of a whole evaluation set."""

from bert_tf.training.evaluation.bootstrap import bootstrap_intervals
from bert_tf.training.evaluation.metrics import BinaryAUC, BinaryF1
from bert_tf.training.evaluation.probabilities import sigmoid, softmax
from bert_tf.training.evaluation.ranking import score_rankings
from bert_tf.training.evaluation.scores import all_scores

__all__ = [
    "BinaryAUC",
    "BinaryF1",
    "all_scores",
    "bootstrap_intervals",
    "score_rankings",
    "sigmoid",
    "softmax",
]
