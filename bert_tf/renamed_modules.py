"""Modules that have moved. Their old names can be imported for one more release."""

import importlib
import importlib.abc
import importlib.util
import sys

from bert_tf.deprecation import warn_renamed

# Modules that have kept their names: (old package, new package), both below `bert_tf`.
_MOVED = {
    ("checkpoints", "checkpoints.readers"): (
        "crc32c h5_file keras_archive keras_hub safetensors_source sstable stored_zip "
        "tensor_bundle tensor_source tf1_source tf_models_source torch_pickle torch_source"
    ),
    ("data", "tasks.masked_lm"): "masked_text",
    ("data", "tasks.pretraining"): (
        "document_chunks example_batches example_runs segment_pairs token_source"
    ),
    ("data", "tasks.token_classification"): "tag_schemes",
    ("models", "compression"): "calibration distillation_model distillation_pair layer_dropping",
    ("models", "tasks.masked_lm"): "masked_word_model one_mask_batches",
    ("models", "tasks.text_classification"): "cached_features number_names",
    ("serving", "models"): "serving_module",
    ("serving", "text"): "text_slices",
    ("training", "compression"): "distillation_losses head_selection",
    ("training", "training.callbacks"): (
        "epoch_scores gradual_unfreezing json_lines progress_line step_callback stop_on_signal "
        "tensorboard_scalars threshold_sweep training_log"
    ),
    ("training", "training.checkpointing"): "checkpoint_files",
    ("training", "training.distribution"): "distributed_batches strategies",
    ("training", "training.evaluation"): "bootstrap confusion_matrix metrics probabilities scores",
    ("training", "training.losses"): (
        "class_weights partial_loss sentence_losses sparse_crossentropy"
    ),
    ("training", "training.optimizers"): "adam_weight_decay clipped_optimizer lamb",
    ("training", "training.schedules"): "noam warmup_cosine_decay",
}
# Old module -> new module.
RENAMED = {
    f"{old}.{name}": f"{new}.{name}"
    for (old, new), names in _MOVED.items()
    for name in names.split()
} | {
    "checkpoints.readers.tf_h5_source": "checkpoints.readers.tf_variables_source",
    "checkpoints.tasks": "checkpoints.model_weights",
    "checkpoints.tf_h5_source": "checkpoints.readers.tf_variables_source",
    "data.answer_predictions": "tasks.question_answering.prediction_files",
    "data.classification_task": "tasks.text_classification.files",
    "data.classification_tasks": "tasks.text_classification.official_tasks",
    "data.predictions": "tasks.text_classification.prediction_files",
    "data.pretraining_data": "tasks.pretraining.create_data",
    "data.pretraining_examples": "tasks.pretraining.examples",
    "data.pretraining_features": "tasks.pretraining.features",
    "data.pretraining_record_files": "tasks.pretraining.record_files",
    "data.pretraining_records": "tasks.pretraining.records",
    "data.pretraining_summary": "tasks.pretraining.summary",
    "data.pretraining_text": "tasks.pretraining.text",
    "data.sentence_examples": "tasks.sentence_embedding.files",
    "data.squad": "tasks.question_answering.files",
    "data.swag": "tasks.multiple_choice.files",
    "data.tagged_sentences": "tasks.token_classification.word_windows",
    "data.tagged_text": "tasks.token_classification.files",
    "models.feature_extractor": "tasks.feature_extraction.model",
    "models.masked_lm": "tasks.masked_lm.model",
    "models.multiple_choice": "tasks.multiple_choice.model",
    "models.next_sentence": "tasks.next_sentence_prediction.model",
    "models.position_extension": "models.position_embeddings",
    "models.pretrainer": "tasks.pretraining.model",
    "models.question_answerer": "tasks.question_answering.model",
    "models.sentence_encoder": "tasks.sentence_embedding.model",
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
    "serving.tagger_module": "tasks.token_classification.serving",
    "serving.window_batches": "models.bounded_batches",
    "training.evaluation_statistics": "tasks.pretraining.metrics",
    "training.peer_watch": "training.distribution.worker_health_monitor",
    "training.squad_metrics": "tasks.question_answering.metrics",
    "training.stop_on_bad_loss": "training.callbacks.terminate_on_bad_loss",
    "training.tagging_report": "tasks.token_classification.report",
}


class _OldNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads the new module under the old name, as the same object."""

    def find_spec(self, fullname, path=None, target=None):
        package, _, name = fullname.partition(".")
        is_old = package == "bert_tf" and name in RENAMED
        return importlib.util.spec_from_loader(fullname, self) if is_old else None

    def create_module(self, spec):
        new = f"bert_tf.{RENAMED[spec.name.partition('.')[2]]}"
        warn_renamed(spec.name, new)
        module = importlib.import_module(new)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module):
        # Python has replaced the module's own specification by that of the old name.
        module.__spec__ = module.__spec__.loader_state


def install() -> None:
    """Makes the old names importable."""
    if not any(isinstance(finder, _OldNames) for finder in sys.meta_path):
        sys.meta_path.append(_OldNames())
