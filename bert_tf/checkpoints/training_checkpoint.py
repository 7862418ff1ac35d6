"""What `TrainingCheckpoint` writes, opened for its weights: the state of the optimizer stays there.

A state without the class of the model is of a version before 0.22, and names the model's variables
after the class.
"""

import dataclasses
import os
import re

from bert_tf.checkpoints.claims import check_claims
from bert_tf.checkpoints.model_weights import SPECS, class_name_of, model_class
from bert_tf.checkpoints.readers.keras_archive import ModelSource
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError
from bert_tf.json_schema import check, object_of, one_of
from bert_tf.model_options import OPTIONS
from bert_tf.models.backbone import BertBackbone
from bert_tf.training.checkpointing.checkpoint_files import (
    MANIFEST,
    STATE,
    checkpoint_path,
    checkpoint_steps,
    read_checkpoint,
)
from bert_tf.training.checkpointing.training_checkpoint import model_variables

DIRECTORY = "checkpoints"  # of the tools, in --output_dir
_MODEL = object_of({"class": one_of(*SPECS), "options": OPTIONS})


def find_training_checkpoint(path: str) -> str | None:
    """The `ckpt-<step>` that a path means: itself, or the newest in it or in its `checkpoints`."""
    if os.path.exists(os.path.join(path, MANIFEST)):
        return path
    for directory in (path, os.path.join(path, DIRECTORY)):
        steps = checkpoint_steps(directory)
        if steps:
            return checkpoint_path(directory, steps[-1])
    return None


def describe_model(model) -> dict:
    """What a checkpoint says of the model besides its network; nothing of a user's own class."""
    name = class_name_of(model)
    if name not in SPECS or not type(model).__module__.startswith("bert_tf."):
        return {}
    kept_elsewhere = ("name", "dtype", "backbone", "tokenizer")
    options = {k: v for k, v in model.get_config().items() if k not in kept_elsewhere}
    return {"class": name, "options": options}


def load_training_checkpoint(path: str) -> tuple[str, BertConfig, dict, ModelSource]:
    """Builds the model that was trained and gives it the checkpoint's weights.

    Args:
        path: The directory `ckpt-<step>`.

    Returns:
        The class's name, the configuration, the class's other arguments, and the weights.

    Raises:
        CheckpointError: If it is damaged, or of a model that is none of this package's.
    """
    tensors, state = read_checkpoint(path)
    tensors = {name: v for name, v in tensors.items() if name.startswith("model/")}
    saved = state.get("model") or {}
    if saved:
        check(saved, _MODEL, os.path.join(path, STATE), CheckpointError, "model")
    name = saved.get("class") or _class_of(tensors, path)
    options = saved.get("options") or {}
    if "lora" in options:
        raise CheckpointError(
            f"{path} was expected to hold whole kernels. Received: those of a run with LoRA, not "
            "yet merged. Take the model that the run wrote at its end."
        )
    fields = {field.name for field in dataclasses.fields(BertConfig)}
    network = {key: value for key, value in state["network"].items() if key in fields}
    config = BertConfig(**network)
    check_claims(config, options, {key: v.shape for key, v in tensors.items()}, path)
    try:
        model = model_class(name)(BertBackbone(config), **options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path}: its options do not fit {name}: {error}") from None
    variables = model_variables(model)
    if {key: tuple(v.shape) for key, v in variables.items()} != {
        key: values.shape for key, values in tensors.items()
    }:
        other = sorted(set(variables) ^ set(tensors))[:5]
        raise CheckpointError(
            f"{path} was expected to hold the variables of a {name}. Received: others, as {other}. "
            "Take the model that the run wrote at its end."
        )
    for key, variable in variables.items():
        variable.assign(tensors[key])
    return name, config, options, ModelSource(path, model)


def _class_of(tensors, path):
    roots = {name.split("/")[1] for name in tensors}
    for name in SPECS:
        if re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower() in roots:
            return name
    raise CheckpointError(
        f"{path}: a checkpoint of one of bert_tf's models was expected. Received: one of "
        f"{sorted(roots)[:5]}"
    )
