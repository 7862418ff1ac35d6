"""Saves and loads LoRA weights: the low-rank matrices and the heads that were trained with them.

The file is a safetensors file of float32 tensors: `encoder.blocks.{i}.{layer}.lora_kernel_a`
`[in, rank]` and `…lora_kernel_b` `[rank, out]`, `lora_alpha` `[]`, and the heads with the names of
this package's own format.
"""

import os

import numpy as np

from bert_tf.adapt.lora import LORA_LAYERS
from bert_tf.base.array_files import write_safetensors
from bert_tf.base.file_errors import file_error, tensor_error
from bert_tf.base.files import atomic_path
from bert_tf.base.tensor_source import read_floats
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource
from bert_tf.checkpoints.weight_names import OWN, task_heads
from bert_tf.errors import UserError, user_error

_ALPHA = "lora_alpha"


def save_lora(model, path: str | os.PathLike) -> None:
    """Writes the LoRA weights of a model. See `TaskModel.save_lora_weights`.

    Raises `UserError` if the model has no LoRA weights, or trainable variables without a name in
    the table of weight names.
    """
    if model.lora is None:
        received = "a model without LoRA. Call `enable_lora(rank)` first."
        raise user_error("The model", "have LoRA weights", received)
    variables = _variables(model)
    named = {id(variable) for variable in variables.values()}
    unnamed = [v.path for v in model.trainable_variables if id(v) not in named]
    if unnamed:
        raise UserError(
            "The model must be one of bert_tf's models with a frozen backbone. Received: "
            f"{type(model).__name__} with the trainable variables {unnamed}, for which a file of "
            "LoRA weights has no names"
        )
    tensors = {name: variable.numpy().astype(np.float32) for name, variable in variables.items()}
    alpha = model.lora["alpha"]
    tensors[_ALPHA] = np.array(model.lora["rank"] if alpha is None else alpha, np.float32)
    with atomic_path(path) as new:
        write_safetensors(new, tensors)


def load_lora(model, path: str | os.PathLike) -> None:
    """Reads a file of LoRA weights into a model. See `TaskModel.load_lora_weights`.

    Raises `UserError` if the model has other LoRA weights, its kernels cannot have any, or it has
    already been trained, and `CheckpointError` if the file is damaged or does not fit the model.
    """
    source = SafetensorsSource(os.fspath(path), format=OWN)
    names = [name for name in source.shapes if name.endswith(".lora_kernel_a")]
    if not names or _ALPHA not in source.shapes:
        received = f"a file with the tensors {sorted(source.shapes)[:5]}"
        raise file_error(path, "be a file that `save_lora_weights` wrote", received)
    rank, alpha = _checked_rank(model, source, names), source.read(_ALPHA)
    if alpha.shape or not np.isfinite(float(alpha)):
        raise tensor_error(source, _ALPHA, "be one finite number", f"{_ALPHA}={alpha!r:.200}")
    target_modules = [
        name
        for name, path_in_block in LORA_LAYERS.items()
        if any(tensor.endswith(f".{path_in_block}.lora_kernel_a") for tensor in names)
    ]
    saved = {"rank": rank, "alpha": float(alpha), "target_modules": target_modules}
    current = model.lora
    if current is None:
        model.enable_lora(**saved)
    elif {**current, "alpha": float(current["alpha"] or current["rank"])} != saved:
        expected = f"have no LoRA weights, or the same as {path}: {saved}"
        raise user_error("The model", expected, f"{current}. Call `merge_lora()` first.")
    variables = _variables(model)
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    received = {name: shape for name, shape in source.shapes.items() if name != _ALPHA}
    if expected != received:
        differing = sorted(set(expected.items()) ^ set(received.items()))
        must = "hold the LoRA weights and heads of this model"
        raise file_error(path, must, f"differences in {differing}")
    # Read all of them before the first is assigned.
    values = {name: np.array(read_floats(source, name)) for name in variables}
    for name, variable in variables.items():
        variable.assign(values[name])


def _checked_rank(model, source, names):
    """Returns the rank in the file, after its shapes were compared with the model."""
    model.backbone.require_kernels("given LoRA")
    input_sizes = {
        f"encoder.{path}.lora_kernel_a": dense.kernel.shape[0]
        for path, dense in model.backbone.encoder.dense_layers().items()
    }
    rank = source.shapes[names[0]][-1] if source.shapes[names[0]] else 0
    for name in names:
        if rank < 1 or source.shapes[name] != (input_sizes.get(name), rank):
            shape = f"shape [{input_sizes.get(name)}, rank]"
            expected = f"have {shape}, with the same rank in the whole file"
            raise tensor_error(source, name, expected, f"shape={list(source.shapes[name])}")
    return rank


def _variables(model):
    """Returns the variables that a file of LoRA weights holds, by name."""
    variables = {}
    for index, block in enumerate(model.backbone.encoder.blocks):
        for name in model.lora["target_modules"]:
            path = LORA_LAYERS[name]
            form = block.dense_layers()[path].kernel_impl
            for variable in (form.a, form.b):
                variables[f"encoder.blocks.{index}.{path}.{variable.name}"] = variable
    for weights in task_heads(model).values():
        variables.update({weight.name: weight.variable for weight in weights})
    return variables
