"""Functions of higher packages that models, training and tokenizers call, without import cycles."""

import importlib
from collections.abc import Callable


def _hook(module: str, name: str) -> Callable:
    """Returns the function `name` of a module, which is imported when the function is called."""

    def call(*args, **kwargs):
        return getattr(importlib.import_module(module), name)(*args, **kwargs)

    return call


load_backbone = _hook("bert_tf.checkpoints.loading", "load_backbone")
load_task_model = _hook("bert_tf.checkpoints.loading", "load_task_model")
load_encoder_and_decoder = _hook("bert_tf.checkpoints.warm_start", "load_encoder_and_decoder")
resolve = _hook("bert_tf.checkpoints.opening", "resolve")
folder_weights = _hook("bert_tf.checkpoints.huggingface_files", "folder_weights")
task_inputs = _hook("bert_tf.tasks", "inputs")
declared_spec = _hook("bert_tf.tasks", "declared_spec")
preprocessor_spec = _hook("bert_tf.tasks", "preprocessor_spec")
checked_added_tokens = _hook("bert_tf.text.added_tokens", "checked_tokens")
around_added_tokens = _hook("bert_tf.text.added_tokens", "around")
encode_texts = _hook("bert_tf.text.encoding", "encode")
tokenizer_directory = _hook("bert_tf.checkpoints.opening", "tokenizer_directory")
save_model = _hook("bert_tf.checkpoints.saving", "save_model")
save_lora = _hook("bert_tf.checkpoints.lora", "save_lora")
load_lora = _hook("bert_tf.checkpoints.lora", "load_lora")
describe_model = _hook("bert_tf.checkpoints.training_checkpoint", "describe_model")
enable_lora = _hook("bert_tf.adapt.lora", "enable_lora")
merge_lora = _hook("bert_tf.adapt.lora", "merge_lora")
calibration_batches = _hook("bert_tf.adapt.calibration", "calibration_batches")
calibrate = _hook("bert_tf.adapt.calibration", "calibrate")
quantization_errors = _hook("bert_tf.adapt.calibration", "quantization_errors")
export_from_model = _hook("bert_tf.serving.export", "export_from_model")
