"""Optimizers: Adam with weight decay as in the original, LAMB; both clip by the global norm."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "AdamWeightDecay": ".adam_weight_decay",
        "ClippedOptimizer": ".clipped_optimizer",
        "LAMB": ".lamb",
    },
)
