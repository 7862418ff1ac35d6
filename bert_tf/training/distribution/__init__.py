"""Training on several devices, on several machines or on a TPU."""

from bert_tf.base.lazy_names import lazy_names

_STRATEGY_NAMES = ("STRATEGIES", "WorkerHealthMonitor", "is_chief", "make_strategy")
_PIPELINE_NAMES = ("make_pipeline_devices", "pipeline_stages")
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DistributedBatches": ".distributed_batches",
        **dict.fromkeys(_STRATEGY_NAMES, ".strategies"),
        **dict.fromkeys(_PIPELINE_NAMES, "bert_tf.training.pipelined_step"),
    },
)
