"""Loads the weights from the checkpoints that `TrainingCheckpoint` writes.

The state of the optimizer is not loaded.
"""

import dataclasses
import os

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.json_schema import check, object_of, one_of
from bert_tf.checkpoints.assignment import check_claims
from bert_tf.checkpoints.readers.keras_archive import ModelSource
from bert_tf.checkpoints.weight_names import (
    BACKBONE_OPTIONS,
    ModelDescription,
    build_saved,
    saved_options,
)
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError
from bert_tf.models.backbone import BertBackbone
from bert_tf.training.checkpointing.checkpoint_files import (
    MANIFEST,
    STATE,
    newest_checkpoint,
    read_checkpoint,
)
from bert_tf.training.checkpointing.training_checkpoint import model_variables

DIRECTORY = "checkpoints"  # the folder of the training checkpoints in a tool's --output_dir


@tasks.kept_until_registration
def _model():
    return object_of(
        {"class": one_of(*(spec.model for spec in tasks.specs())), "options": BACKBONE_OPTIONS}
    )


def find_training_checkpoint(path: str) -> str | None:
    """Returns the `ckpt-<step>` of a path: itself, or the newest in it or its `checkpoints`."""
    if os.path.exists(os.path.join(path, MANIFEST)):
        return path
    return newest_checkpoint(path) or newest_checkpoint(os.path.join(path, DIRECTORY))


def describe_model(model) -> dict:
    """Returns the class and arguments that a checkpoint stores; empty for a user's class."""
    spec = tasks.spec_of(type(model))
    if spec is None or type(model) is not spec.model_class():
        return {}
    return {"class": spec.model, "options": saved_options(model)}


def load_training_checkpoint(path: str) -> tuple[ModelDescription, ModelSource]:
    """Builds the model that was trained and loads the weights of a directory `ckpt-<step>`.

    Raises `CheckpointError` if the checkpoint is damaged, its model is not one of this package's,
    or it has LoRA weights that are not merged.
    """
    tensors, state = read_checkpoint(path)
    tensors = {name: v for name, v in tensors.items() if name.startswith("model/")}
    saved = state.get("model")
    if not saved:
        expected = "be a checkpoint of one of bert_tf's models"
        raise file_error(path, expected, "one of a class of your own")
    check(saved, _model(), os.path.join(path, STATE), CheckpointError, "model")
    name, options = saved["class"], saved["options"]
    if "lora" in options:
        received = "LoRA weights that are not merged. Open the model that the run wrote at its end."
        raise file_error(path, "be a checkpoint of a run without LoRA", received)
    fields = {field.name for field in dataclasses.fields(BertConfig)}
    network = {key: value for key, value in state["network"].items() if key in fields}
    config = BertConfig(**network)
    check_claims(config, options, {key: v.shape for key, v in tensors.items()}, path)
    model = build_saved(path, name, BertBackbone(config), options)
    variables = model_variables(model)
    shapes = {key: tuple(variable.shape) for key, variable in variables.items()}
    if shapes != {key: values.shape for key, values in tensors.items()}:
        differing = sorted(set(variables) ^ set(tensors))[:5]
        received = f"other variables or shapes, such as {differing}"
        advice = "Open the model that the run wrote at its end."
        raise file_error(path, f"hold the variables of a {name}", f"{received}. {advice}")
    for key, variable in variables.items():
        variable.assign(tensors[key])
    return ModelDescription(config, name, options), ModelSource(path, model)
