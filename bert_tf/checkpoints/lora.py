"""LoRA's weights alone: the low-rank additions and the heads that were trained with them.

A safetensors file of float32 tensors: `encoder.blocks.{i}.{layer}.lora_kernel_a` `[in, r]` and
`…lora_kernel_b` `[r, out]`, `lora_alpha` `[]`, and the heads under their names in this package's
own format.
"""

import operator
import os

import numpy as np

from bert_tf.checkpoints.assignment import read_floats
from bert_tf.checkpoints.model_weights import task_heads
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource, write_safetensors
from bert_tf.checkpoints.weight_names import OWN
from bert_tf.errors import CheckpointError, UserError
from bert_tf.files import atomic_path
from bert_tf.models.lora_model import LORA_LAYERS

_ALPHA = "lora_alpha"


def save_lora(model, path: str | os.PathLike) -> None:
    """Writes the file. See `LoraModel.save_lora_weights`."""
    if model.lora is None:
        raise UserError("There are no LoRA weights to save: call `enable_lora(rank)` first.")
    variables = _variables(model)
    named = {id(variable) for variable in variables.values()}
    unnamed = [v.path for v in model.trainable_variables if id(v) not in named]
    if unnamed:
        raise UserError(
            f"A file of LoRA weights has no names for {unnamed} of {type(model).__name__}. "
            "Expected one of bert_tf's models, its backbone frozen."
        )
    tensors = {name: variable.numpy().astype(np.float32) for name, variable in variables.items()}
    alpha = model.lora["alpha"]
    tensors[_ALPHA] = np.array(model.lora["rank"] if alpha is None else alpha, np.float32)
    with atomic_path(path) as new:
        write_safetensors(new, tensors)


def load_lora(model, path: str | os.PathLike) -> None:
    """Reads the file. See `LoraModel.load_lora_weights`."""
    source = SafetensorsSource(os.fspath(path), format=OWN)
    names = [name for name in source.shapes if name.endswith(".lora_kernel_a")]
    if not names or _ALPHA not in source.shapes:
        raise CheckpointError(
            f"{path}: expected a file of `save_lora_weights`. Received: {sorted(source.shapes)[:5]}"
        )
    told = {
        "rank": _checked_rank(model, source, names),
        "alpha": _read_alpha(source),
        "layers": [
            layer
            for layer, place in LORA_LAYERS.items()
            if any(name.endswith(f".{place}.lora_kernel_a") for name in names)
        ],
    }
    before = model.lora
    if before is None:
        model.enable_lora(**told)
    elif {**before, "alpha": float(before["alpha"] or before["rank"])} != told:
        raise UserError(
            f"The model has other LoRA than {path}: expected {told}. Received: {before}. Call "
            "`merge_lora()` first."
        )
    variables = _variables(model)
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    received = {name: shape for name, shape in source.shapes.items() if name != _ALPHA}
    if expected != received:
        differing = sorted(set(expected.items()) ^ set(received.items()))
        raise CheckpointError(f"{path} does not fit the model. They differ in: {differing}")
    values = {name: np.array(read_floats(source, name)) for name in variables}  # all or none
    for name, variable in variables.items():
        variable.assign(values[name])


def _checked_rank(model, source, names):
    """The rank of all additions, compared with the model before memory is taken for them."""
    model.backbone.require_kernels("given LoRA")
    widths = {
        f"encoder.blocks.{index}.{place}.lora_kernel_a": getter(block).kernel.shape[0]
        for place, getter in ((p, operator.attrgetter(p)) for p in LORA_LAYERS.values())
        for index, block in enumerate(model.backbone.encoder.blocks)
    }
    rank = source.shapes[names[0]][-1] if source.shapes[names[0]] else 0
    for name in names:
        if rank < 1 or source.shapes[name] != (widths.get(name), rank):
            raise CheckpointError(
                f"{source.path} does not fit the model: {name} of shape "
                f"[{widths.get(name)}, rank] was expected, one rank in the whole file. Received: "
                f"{list(source.shapes[name])}"
            )
    return rank


def _read_alpha(source):
    alpha = source.read(_ALPHA)
    if alpha.shape or not np.isfinite(float(alpha)):
        raise CheckpointError(
            f"{source.path}: `{_ALPHA}` must be one finite number. "
            f"Received: {_ALPHA}={alpha!r:.200}"
        )
    return float(alpha)


def _variables(model):
    """The variables of such a file by their names."""
    variables = {}
    for index, block in enumerate(model.backbone.encoder.blocks):
        for layer in model.lora["layers"]:
            dense = operator.attrgetter(LORA_LAYERS[layer])(block)
            for name in ("lora_kernel_a", "lora_kernel_b"):
                place = f"encoder.blocks.{index}.{LORA_LAYERS[layer]}.{name}"
                variables[place] = getattr(dense, name)
    for weights in task_heads(model).values():
        variables.update({weight.name: weight.variable for weight in weights})
    return variables
