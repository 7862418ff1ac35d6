"""Callbacks: logs, scores after each epoch, gradual unfreezing, stopping."""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "EpochScores": ".epoch_scores",
        "GradualUnfreezing": ".gradual_unfreezing",
        "JsonLines": ".json_lines",
        "ProgressLine": ".progress_line",
        "StopOnBadLoss": ".stop_on_bad_loss",
        "StopOnSignal": ".stop_on_signal",
        "TensorBoardScalars": ".tensorboard_scalars",
        "ThresholdSweep": ".threshold_sweep",
        "TrainingLog": ".training_log",
        "best_threshold": ".threshold_sweep",
        "read_json_lines": ".json_lines",
    },
)
