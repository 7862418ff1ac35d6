"""Assigns the tensors of a file to the variables of a model, after checking all of them."""

import logging
import math
from collections.abc import Sequence

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.base.tensor_source import TensorSource, read_floats
from bert_tf.checkpoints.weight_names import Weight, part_names
from bert_tf.errors import CheckpointError
from bert_tf.models.task_spec import Head
from bert_tf.models.weight_rows import PROJECTION

_logger = logging.getLogger("bert_tf")

# Names of LayerNorm weights in old Hugging Face files that were converted from TF checkpoints.
_OLD_LAYER_NORM = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
# A progress bar is shown from this size on; smaller files load in less than a second.
_LARGE_BYTES = 256 * 2**20

# A variable and the name of each of its parts in a file.
Assignment = tuple[Weight, tuple[str, ...]]


def find_tensor(source: TensorSource, names: Sequence[str]) -> str | None:
    """Returns which of `names` is in a file, also with another prefix or old spelling, or None."""
    candidates = list(names)
    if source.format == "huggingface":
        for new, old in _OLD_LAYER_NORM.items():
            candidates += [name.replace(new, old) for name in names]
        candidates += [f"bert.{candidate}" for candidate in candidates]
    return next((name for name in candidates if name in source.shapes), None)


def find_biases(source: TensorSource, head: Head) -> list[str | None]:
    """Returns the names of a head's biases in the file, None for a missing one.

    For a layer without a bias, it is the name of the kernel.
    """
    rows = [row for row in head.rows if getattr(row, source.format, None) is not None]
    names = ["kernel" if row.kind == PROJECTION else "bias" for row in rows]
    return [
        find_tensor(source, part_names(row, source.format, name)) for row, name in zip(rows, names)
    ]


def find_weights(source: TensorSource, weights: list[Weight]) -> list[str | None]:
    """Returns the names of the tensors of `weights` in the file, None for a missing one."""
    # None for a weight that the format has no name for.
    parts = [part for weight in weights for part in weight.parts[source.format] or (None,)]
    return [part and find_tensor(source, part.names) for part in parts]


def _plan_assignment(source, weights) -> tuple[list[Assignment], list[str]]:
    """Returns the assignments and the names of the file's unused tensors."""
    problems, plan, used = [], [], set()
    name_in_file = getattr(source, "name_in_file", str)
    for weight in weights:
        found = []
        parts = weight.parts[source.format]
        if not parts:
            problems.append(f"  missing: {weight.name}, which this format has no name for")
        for part in parts:
            name = find_tensor(source, part.names)
            if name is None:
                missing = name_in_file(part.names[0])
                problems.append(f"  missing: {missing}, expected shape {list(part.shape)}")
                continue
            found.append(name)
            expected, received = list(part.shape), list(source.shapes[name])
            if received != expected:
                name = name_in_file(name)
                problems.append(f"  {name}: expected shape {expected}, received {received}")
        plan.append((weight, tuple(found)))
        used.update(found)
    if problems:
        problems.insert(0, f"{source.path} must fit the configuration. Received:")
        raise CheckpointError("\n".join(problems))
    # The unused tensors, each once even if it has several names.
    aliases = getattr(source, "aliases", {})
    used = {aliases.get(name, name) for name in used}
    rest = {aliases.get(name, name): name for name in source.shapes}
    return plan, sorted(name for key, name in rest.items() if key not in used)


def assign_weights(
    source: TensorSource, weights: list[Weight], also_used: Sequence[str] = ()
) -> tuple[list[Assignment], list[str]]:
    """Loads `weights` from `source` and logs the names of the file's unused tensors.

    In addition to the model, only one variable's tensors are in memory. `also_used` names
    tensors that have already been loaded in another way.

    Returns:
        The assignments and the names of the unused tensors.

    Raises:
        CheckpointError: If tensors are missing or have another shape; the message lists all of
            them and nothing is assigned. Also if values are damaged, not floating-point or not
            finite.
    """
    plan, unused = _plan_assignment(source, weights)
    unused = [name for name in unused if name not in also_used]
    size = sum(4 * math.prod(weight.variable.shape) for weight, _ in plan)
    is_small = size < _LARGE_BYTES
    progress = progress_bar(
        total=size, unit="B", unit_scale=True, desc="loading weights", disable=is_small
    )
    for weight, found in plan:
        variable, arrays = weight.variable, []
        for name, part in zip(found, weight.parts[source.format]):
            values = read_floats(source, name)
            # Keras formats keep the heads in a separate axis, e.g. [H, N, D] -> [H, N * D].
            shape = (*variable.shape[:-1], -1)
            arrays.append(values.T if part.transposed else values.reshape(shape))
        # Always a copy: TensorFlow may use the array as the variable's memory and train in it, and
        # `arrays` may be views of a file.
        variable.assign(np.concatenate(arrays, axis=-1) if len(arrays) > 1 else np.array(arrays[0]))
        progress.update(4 * math.prod(variable.shape))
    progress.close()
    if unused:
        _logger.info("%s: not used: %s", source.path, ", ".join(unused))
    return plan, unused
