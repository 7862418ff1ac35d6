"""From a file's tensors to a model's variables: all checked first, then all assigned."""

import dataclasses
import logging
import math
from collections.abc import Sequence

import numpy as np

from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.checkpoints.weight_names import Part, Weight
from bert_tf.errors import CheckpointError

_logger = logging.getLogger("bert_tf")

# Old spellings of Hugging Face's LayerNorm, made from TF checkpoints.
_OLD_LAYER_NORM = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
# A progress bar from here on: below it, loading takes less than a second.
_LARGE_BYTES = 256 * 2**20


@dataclasses.dataclass(frozen=True)
class Assignment:
    """A variable and the tensors of the file that fill it.

    Attributes:
        weight: The variable with its names.
        found: The file's name of each part.
        parts: The parts, in the same order.
    """

    weight: Weight
    found: tuple[str, ...]
    parts: tuple[Part, ...]


class TensorNames:
    """Finds the names of the table in a file, where a prefix or an old spelling may differ."""

    def __init__(self, source: TensorSource):
        self._source = source
        self._used = set()

    def find(self, part: Part) -> str | None:
        """The file's name for a tensor of the table, or None."""
        candidates = list(part.names)
        if self._source.format == "huggingface":
            for name in part.names:
                for old, new in _OLD_LAYER_NORM.items():
                    if name.endswith(old):
                        candidates.append(name.removesuffix(old) + new)
            candidates += [f"bert.{candidate}" for candidate in candidates]
        for candidate in candidates:
            if candidate in self._source.shapes:
                return candidate
        return None

    def use(self, name: str) -> None:
        self._used.add(name)

    def unused(self) -> list[str]:
        """The tensors of the file that nothing asked for."""
        aliases = getattr(self._source, "aliases", {})
        used = {aliases.get(name, name) for name in self._used}
        rest = {aliases.get(name, name): name for name in self._source.shapes}
        return sorted(name for key, name in rest.items() if key not in used)


def has_weights(source: TensorSource, weights: list[Weight]) -> bool:
    """Whether the file holds all of `weights`, whatever their shapes."""
    names = TensorNames(source)
    return all(
        weight.parts[source.format]
        and all(names.find(part) is not None for part in weight.parts[source.format])
        for weight in weights
    )


def has_any_weight(source: TensorSource, weights: list[Weight]) -> bool:
    """Whether the file holds one of `weights`: then it should hold all."""
    names = TensorNames(source)
    parts = [part for weight in weights for part in weight.parts[source.format]]
    return any(names.find(part) is not None for part in parts)


def plan_assignment(
    source: TensorSource, weights: list[Weight]
) -> tuple[list[Assignment], list[str]]:
    """What goes where, and which tensors of the file are left over.

    Raises:
        CheckpointError: Lists every missing tensor and every tensor of another shape.
    """
    names = TensorNames(source)
    problems, plan = [], []
    for weight in weights:
        found = []
        parts = weight.parts[source.format]
        if not parts:
            problems.append(f"  missing: {weight.name}, which this format has no name for")
        for part in parts:
            name = names.find(part)
            if name is None:
                problems.append(f"  missing: {part.names[0]}, expected shape {list(part.shape)}")
                continue
            names.use(name)
            found.append(name)
            received = source.shapes[name]
            if received != part.shape:
                problems.append(
                    f"  {name}: expected shape {list(part.shape)}, received {list(received)}"
                )
        plan.append(Assignment(weight, tuple(found), parts))
    if problems:
        raise CheckpointError(
            f"{source.path} does not fit the configuration:\n" + "\n".join(problems)
        )
    return plan, names.unused()


def assign_weights(
    source: TensorSource, weights: list[Weight], also_used: Sequence[str] = ()
) -> list[Assignment]:
    """Loads `weights` from `source`; names in the log every tensor that was not used.

    One tensor at a time is in memory beside the model; a large file shows a progress bar.

    Args:
        source: The file.
        weights: What to load.
        also_used: Tensors of the file that were loaded by other ways.

    Returns:
        What went where.

    Raises:
        CheckpointError: Lists every missing tensor and every tensor of another shape; nothing is
            assigned then. Or if values are damaged, no floats, or not finite.
    """
    plan, unused = plan_assignment(source, weights)
    unused = [name for name in unused if name not in also_used]
    progress = _progress(plan)
    for assignment in plan:
        variable = assignment.weight.variable
        arrays = [
            _read(source, name, part) for name, part in zip(assignment.found, assignment.parts)
        ]
        # A copy always: TensorFlow may keep the array as the variable's own memory and train in it,
        # and `arrays` may be views of a file.
        variable.assign(np.concatenate(arrays, axis=-1) if len(arrays) > 1 else np.array(arrays[0]))
        progress.update(4 * math.prod(variable.shape))
    progress.close()
    if unused:
        _logger.info("%s: not used: %s", source.path, ", ".join(unused))
    return plan


def _progress(plan):
    from tqdm import tqdm

    size = sum(4 * math.prod(assignment.weight.variable.shape) for assignment in plan)
    return tqdm(
        total=size, unit="B", unit_scale=True, desc="loading weights", disable=size < _LARGE_BYTES
    )


def _read(source, name, part):
    """One part as float32 in our own layout: [in, out], heads side by side."""
    values = read_floats(source, name)
    # Keras keeps heads as dimensions of their own: [H, N, D] -> [H, N * D], and so on.
    return values.T if part.transposed else values.reshape(part.our_shape)


def read_floats(source: TensorSource, name: str) -> np.ndarray:
    """One tensor of a file as float32; a view of the file where it can be.

    Raises:
        CheckpointError: If it is damaged, holds no floating-point numbers, or any that is not
            finite.
    """
    values = source.read(name)
    if not isinstance(values, np.ndarray) or values.shape != source.shapes[name]:
        raise CheckpointError(f"{source.path}: {name} is damaged: not of the shape it announced")
    if values.dtype.name not in ("float32", "float16", "bfloat16", "float64"):
        raise CheckpointError(
            f"{source.path}: {name} must hold floating-point numbers. Received: {values.dtype}"
        )
    values = values.astype(np.float32, copy=False)
    # A minimum and a maximum are NaN if one value is, and cost no temporary array.
    if values.size and not np.isfinite(values.min() + values.max()):
        raise CheckpointError(
            f"{source.path}: {name} holds values that are not finite numbers; it is damaged"
        )
    return values


def file_layout(values: np.ndarray, part: Part) -> np.ndarray:
    """The inverse of reading: an array of ours, one part of it, as the file has it."""
    values = values.T if part.transposed else values
    return np.ascontiguousarray(values).reshape(part.shape)
