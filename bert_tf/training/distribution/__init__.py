"""Training on several GPUs, machines or a TPU."""

from bert_tf.training.distribution.distributed_batches import DistributedBatches
from bert_tf.training.distribution.peer_watch import PeerWatch
from bert_tf.training.distribution.strategies import STRATEGIES, is_chief, make_strategy

__all__ = ["STRATEGIES", "DistributedBatches", "PeerWatch", "is_chief", "make_strategy"]
