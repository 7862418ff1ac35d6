"""Callbacks: logs, scores after each epoch, gradual unfreezing, stopping."""

from bert_tf.base.lazy_names import lazy_names

_LOGS = ("JsonLines", "ProgressLine", "TrainingLog", "read_json_lines")
__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(("EpochScores", "ThresholdSweep", "best_threshold"), ".held_out_scores"),
        "GradualUnfreezing": "bert_tf.training.freezing",
        **dict.fromkeys(("Heartbeat", "StopOnSignal", "TerminateOnBadLoss"), ".stopping"),
        **dict.fromkeys(("TensorBoardHistograms", "TensorBoardScalars"), ".tensorboard"),
        **dict.fromkeys(_LOGS, ".training_log"),
    },
)
