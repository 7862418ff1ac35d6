"""Learning rate schedules."""

from bert_tf.training.schedules.noam import Noam
from bert_tf.training.schedules.warmup_cosine_decay import WarmupCosineDecay
from bert_tf.training.schedules.warmup_linear_decay import WarmupLinearDecay

__all__ = ["Noam", "WarmupCosineDecay", "WarmupLinearDecay"]
