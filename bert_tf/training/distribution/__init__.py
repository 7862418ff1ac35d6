"""Training on several GPUs, machines or a TPU."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "DistributedBatches": ".distributed_batches",
        "PeerWatch": ".peer_watch",
        "STRATEGIES": ".strategies",
        "is_chief": ".strategies",
        "make_strategy": ".strategies",
    },
)
