"""Training: the original's recipe and what people add to it.

Everything is in the sub-packages; what most programs use can be imported from here.
"""

from bert_tf.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "AdamWeightDecay": ".optimizers.adam_weight_decay",
        "BinaryAUC": ".evaluation.metrics",
        "BinaryF1": ".evaluation.metrics",
        "ClassificationLoss": ".losses.sentence_losses",
        "CosineRegressionLoss": ".losses.sentence_losses",
        "DamagedCheckpoint": ".checkpointing.checkpoint_files",
        "DistributedBatches": ".distribution.distributed_batches",
        "EpochScores": ".callbacks.epoch_scores",
        "GradualUnfreezing": ".callbacks.gradual_unfreezing",
        "JsonLines": ".callbacks.json_lines",
        "LAMB": ".optimizers.lamb",
        "MultipleNegativesRankingLoss": ".losses.sentence_losses",
        "Noam": ".schedules.noam",
        "PeerWatch": ".distribution.peer_watch",
        "ProgressLine": ".callbacks.progress_line",
        "STRATEGIES": ".distribution.strategies",
        "SparseCrossentropy": ".losses.sparse_crossentropy",
        "StopOnBadLoss": ".callbacks.stop_on_bad_loss",
        "StopOnSignal": ".callbacks.stop_on_signal",
        "TensorBoardScalars": ".callbacks.tensorboard_scalars",
        "ThresholdSweep": ".callbacks.threshold_sweep",
        "TrainingCheckpoint": ".checkpointing.training_checkpoint",
        "TrainingLog": ".callbacks.training_log",
        "TripletLoss": ".losses.sentence_losses",
        "WarmupCosineDecay": ".schedules.warmup_cosine_decay",
        "WarmupLinearDecay": ".schedules.warmup_linear_decay",
        "all_scores": ".evaluation.scores",
        "balanced_class_weights": ".losses.sparse_crossentropy",
        "best_threshold": ".callbacks.threshold_sweep",
        "bootstrap_intervals": ".evaluation.bootstrap",
        "fit_steps": ".steps",
        "freeze_layers": ".freezing",
        "is_chief": ".distribution.strategies",
        "make_strategy": ".distribution.strategies",
        "read_json_lines": ".callbacks.json_lines",
        "reinitialize_top_layers": ".reinitialization",
    },
    moved={
        "TaggingScores": "bert_tf.tasks.token_classification",
        "best_null_thresholds": "bert_tf.tasks.question_answering",
        "head_importance": "bert_tf.compression",
        "least_important_heads": "bert_tf.compression",
        "squad_intervals": "bert_tf.tasks.question_answering",
        "squad_scores": "bert_tf.tasks.question_answering",
        "tagging_intervals": "bert_tf.tasks.token_classification",
        "tagging_scores": "bert_tf.tasks.token_classification",
    },
)
