"""Optimizers: Adam with weight decay as in the original, and LAMB. Both clip by the global norm."""

from bert_tf.training.optimizers.adam_weight_decay import LAMB, AdamWeightDecay

__all__ = ["LAMB", "AdamWeightDecay"]
