"""Training: optimizers, schedules, losses, callbacks, scores, checkpoints, `tf.distribute`.

The names that most programs use can be imported from here, all others from the sub-packages.
"""

from bert_tf.base.lazy_names import lazy_names
from bert_tf.training import losses
from bert_tf.training.callbacks import EpochScores, GradualUnfreezing, ThresholdSweep
from bert_tf.training.checkpointing import TrainingCheckpoint, load_average
from bert_tf.training.distribution import make_strategy, pipeline_stages
from bert_tf.training.evaluation import BinaryAUC, BinaryF1, all_scores
from bert_tf.training.freezing import freeze_layers, reinitialize_top_layers
from bert_tf.training.optimizers import LAMB, AdamWeightDecay
from bert_tf.training.schedules import Noam, WarmupCosineDecay, WarmupLinearDecay, fit_steps

_SCHEDULES = (
    "WarmupConstant",
    "WarmupCosineRestarts",
    "WarmupInverseSqrt",
    "WarmupPolynomialDecay",
    "WarmupStableDecay",
)
__getattr__, _, _lazy = lazy_names(
    __name__,
    dict.fromkeys(losses.__all__, ".losses") | dict.fromkeys(_SCHEDULES, ".warmup_schedules"),
)
__all__ = [  # noqa: PLE0604
    *_lazy,
    "LAMB",
    "AdamWeightDecay",
    "BinaryAUC",
    "BinaryF1",
    "EpochScores",
    "GradualUnfreezing",
    "Noam",
    "ThresholdSweep",
    "TrainingCheckpoint",
    "WarmupCosineDecay",
    "WarmupLinearDecay",
    "all_scores",
    "fit_steps",
    "freeze_layers",
    "load_average",
    "make_strategy",
    "pipeline_stages",
    "reinitialize_top_layers",
]


def __dir__():
    return sorted(__all__)
