"""Modules that have moved. Their old names can be imported for one more release."""

import importlib
import importlib.abc
import importlib.util
import sys

from bert_tf.deprecation import warn_renamed

# Old module, below `bert_tf` -> new module.
RENAMED = {
    "data.predictions": "tasks.text_classification.prediction_files",
    "models.cached_features": "tasks.text_classification.cached_features",
    "checkpoints.crc32c": "checkpoints.readers.crc32c",
    "checkpoints.h5_file": "checkpoints.readers.h5_file",
    "checkpoints.keras_archive": "checkpoints.readers.keras_archive",
    "checkpoints.keras_hub": "checkpoints.readers.keras_hub",
    "checkpoints.safetensors_source": "checkpoints.readers.safetensors_source",
    "checkpoints.sstable": "checkpoints.readers.sstable",
    "checkpoints.stored_zip": "checkpoints.readers.stored_zip",
    "checkpoints.tasks": "checkpoints.model_weights",
    "checkpoints.tensor_bundle": "checkpoints.readers.tensor_bundle",
    "checkpoints.tensor_source": "checkpoints.readers.tensor_source",
    "checkpoints.tf1_source": "checkpoints.readers.tf1_source",
    "checkpoints.tf_h5_source": "checkpoints.readers.tf_h5_source",
    "checkpoints.tf_models_source": "checkpoints.readers.tf_models_source",
    "checkpoints.torch_pickle": "checkpoints.readers.torch_pickle",
    "checkpoints.torch_source": "checkpoints.readers.torch_source",
    "data.answer_predictions": "tasks.question_answering.prediction_files",
    "data.classification_task": "tasks.text_classification.files",
    "data.classification_tasks": "tasks.text_classification.official_tasks",
    "data.document_chunks": "tasks.pretraining.document_chunks",
    "data.example_batches": "tasks.pretraining.example_batches",
    "data.example_runs": "tasks.pretraining.example_runs",
    "data.masked_text": "tasks.masked_lm.masked_text",
    "data.pretraining_data": "tasks.pretraining.create_data",
    "data.pretraining_examples": "tasks.pretraining.examples",
    "data.pretraining_features": "tasks.pretraining.features",
    "data.pretraining_record_files": "tasks.pretraining.record_files",
    "data.pretraining_records": "tasks.pretraining.records",
    "data.pretraining_summary": "tasks.pretraining.summary",
    "data.pretraining_text": "tasks.pretraining.text",
    "data.segment_pairs": "tasks.pretraining.segment_pairs",
    "data.sentence_examples": "tasks.sentence_embedding.files",
    "data.squad": "tasks.question_answering.files",
    "data.swag": "tasks.multiple_choice.files",
    "data.tag_schemes": "tasks.token_classification.tag_schemes",
    "data.tagged_sentences": "tasks.token_classification.word_windows",
    "data.tagged_text": "tasks.token_classification.files",
    "data.token_source": "tasks.pretraining.token_source",
    "models.calibration": "compression.calibration",
    "models.distillation_model": "compression.distillation_model",
    "models.distillation_pair": "compression.distillation_pair",
    "models.feature_extractor": "tasks.feature_extraction.model",
    "models.layer_dropping": "compression.layer_dropping",
    "models.masked_lm": "tasks.masked_lm.model",
    "models.masked_word_model": "tasks.masked_lm.masked_word_model",
    "models.multiple_choice": "tasks.multiple_choice.model",
    "models.next_sentence": "tasks.next_sentence_prediction.model",
    "models.number_names": "tasks.text_classification.number_names",
    "models.one_mask_batches": "tasks.masked_lm.one_mask_batches",
    "models.pretrainer": "tasks.pretraining.model",
    "models.question_answerer": "tasks.question_answering.model",
    "models.sentence_encoder": "tasks.sentence_embedding.model",
    "models.position_extension": "models.position_embeddings",
    "models.text_classifier": "tasks.text_classification.model",
    "models.token_classifier": "tasks.token_classification.model",
    "serving.answerer_module": "tasks.question_answering.serving",
    "serving.chooser_module": "tasks.multiple_choice.serving",
    "serving.classifier_module": "tasks.text_classification.serving",
    "serving.encoder_module": "tasks.sentence_embedding.serving",
    "serving.frozen_model": "serving.constant_graph_model",
    "serving.graph_words": "tasks.token_classification.words",
    "serving.masked_lm_module": "tasks.masked_lm.serving",
    "serving.next_sentence_module": "tasks.next_sentence_prediction.serving",
    "serving.serving_module": "models.serving_module",
    "serving.tagger_module": "tasks.token_classification.serving",
    "serving.text_slices": "text.text_slices",
    "serving.window_batches": "models.bounded_batches",
    "training.adam_weight_decay": "training.optimizers.adam_weight_decay",
    "training.bootstrap": "training.evaluation.bootstrap",
    "training.checkpoint_files": "training.checkpointing.checkpoint_files",
    "training.class_weights": "training.losses.class_weights",
    "training.clipped_optimizer": "training.optimizers.clipped_optimizer",
    "training.confusion_matrix": "training.evaluation.confusion_matrix",
    "training.distillation_losses": "compression.distillation_losses",
    "training.distributed_batches": "training.distribution.distributed_batches",
    "training.epoch_scores": "training.callbacks.epoch_scores",
    "training.evaluation_statistics": "tasks.pretraining.metrics",
    "training.gradual_unfreezing": "training.callbacks.gradual_unfreezing",
    "training.head_selection": "compression.head_selection",
    "training.json_lines": "training.callbacks.json_lines",
    "training.lamb": "training.optimizers.lamb",
    "training.metrics": "training.evaluation.metrics",
    "training.noam": "training.schedules.noam",
    "training.partial_loss": "training.losses.partial_loss",
    "training.peer_watch": "training.distribution.worker_health_monitor",
    "training.probabilities": "training.evaluation.probabilities",
    "training.progress_line": "training.callbacks.progress_line",
    "training.scores": "training.evaluation.scores",
    "training.sentence_losses": "training.losses.sentence_losses",
    "training.sparse_crossentropy": "training.losses.sparse_crossentropy",
    "training.squad_metrics": "tasks.question_answering.metrics",
    "training.step_callback": "training.callbacks.step_callback",
    "training.stop_on_bad_loss": "training.callbacks.terminate_on_bad_loss",
    "training.stop_on_signal": "training.callbacks.stop_on_signal",
    "training.strategies": "training.distribution.strategies",
    "training.tagging_report": "tasks.token_classification.report",
    "training.tensorboard_scalars": "training.callbacks.tensorboard_scalars",
    "training.threshold_sweep": "training.callbacks.threshold_sweep",
    "training.training_log": "training.callbacks.training_log",
    "training.warmup_cosine_decay": "training.schedules.warmup_cosine_decay",
}


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        package, _, name = fullname.partition(".")
        new = RENAMED.get(name) if package == "bert_tf" else None
        return None if new is None else importlib.util.spec_from_loader(fullname, _Alias(new))


class _Alias(importlib.abc.Loader):
    """Loads the new module under the old name, as the same object."""

    def __init__(self, new):
        self._new = f"bert_tf.{new}"

    def create_module(self, spec):
        warn_renamed(spec.name, self._new)
        module = importlib.import_module(self._new)
        self._spec = module.__spec__
        return module

    def exec_module(self, module):
        module.__spec__ = self._spec  # Python has replaced it by that of the old name


def install() -> None:
    """Makes the old names importable."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
