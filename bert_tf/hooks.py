"""Functions of higher packages that models and training call, without import cycles."""

import importlib


class Hook:
    """A function of a higher package, which is imported when it is called.

    Args:
        module: The module of the function.
        name: The name of the function.
    """

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name

    def __call__(self, *args, **kwargs):
        return getattr(importlib.import_module(self._module), self._name)(*args, **kwargs)


load_backbone = Hook("bert_tf.checkpoints.loading", "load_backbone")
load_task_model = Hook("bert_tf.checkpoints.loading", "load_task_model")
load_sentence_encoder = Hook("bert_tf.checkpoints.sentence_transformers", "load_sentence_encoder")
save_model = Hook("bert_tf.checkpoints.saving", "save_model")
save_lora = Hook("bert_tf.checkpoints.lora", "save_lora")
load_lora = Hook("bert_tf.checkpoints.lora", "load_lora")
describe_model = Hook("bert_tf.checkpoints.training_checkpoint", "describe_model")
calibrate = Hook("bert_tf.compression.calibration", "calibrate")
export = Hook("bert_tf.serving.export", "export")
