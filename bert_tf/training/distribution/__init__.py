"""Training on several devices, on several machines or on a TPU."""

from bert_tf.training.distribution.distributed_batches import DistributedBatches
from bert_tf.training.distribution.strategies import (
    STRATEGIES,
    WorkerHealthMonitor,
    is_chief,
    make_strategy,
)
from bert_tf.training.pipelined_step import make_pipeline_devices, pipeline_stages

__all__ = [
    "STRATEGIES",
    "DistributedBatches",
    "WorkerHealthMonitor",
    "is_chief",
    "make_pipeline_devices",
    "make_strategy",
    "pipeline_stages",
]
