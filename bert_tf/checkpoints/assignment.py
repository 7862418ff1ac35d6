"""From a file's tensors to a model's variables: all checked first, then all assigned."""

import logging

import numpy as np

from bert_tf.checkpoints.tensor_source import TensorSource
from bert_tf.checkpoints.weight_names import Weight
from bert_tf.errors import CheckpointError

_logger = logging.getLogger("bert_tf")

# Old spellings of Hugging Face's LayerNorm, made from TF checkpoints.
_OLD_LAYER_NORM = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


class TensorNames:
    """Finds the names of the table in a file, where a prefix or an old spelling may differ."""

    def __init__(self, source: TensorSource):
        self._source = source
        self._used = set()

    def find(self, name: str) -> str | None:
        """The file's name for the table's `name`, or None."""
        candidates = [name]
        if self._source.names_attribute == "huggingface":
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
        return sorted(set(self._source.shapes) - self._used)


def has_weights(source: TensorSource, weights: list[Weight]) -> bool:
    """Whether the file holds all of `weights`, whatever their shapes."""
    names = TensorNames(source)
    return all(
        names.find(name) is not None
        for weight in weights
        for name in getattr(weight, source.names_attribute)
    )


def assign_weights(source: TensorSource, weights: list[Weight]) -> None:
    """Loads `weights` from `source`; names in the log every tensor that was not used.

    Raises:
        CheckpointError: Lists every missing tensor and every tensor of another shape. Nothing is
            assigned then.
    """
    names = TensorNames(source)
    problems = []
    plan = []
    for weight in weights:
        parts = []
        wanted = getattr(weight, source.names_attribute)
        transposed = getattr(weight, f"transposed_in_{source.names_attribute}")
        shape = _part_shape(weight, len(wanted), transposed)
        for name in wanted:
            found = names.find(name)
            if found is None:
                problems.append(f"  missing: {name}, expected shape {list(shape)}")
                continue
            names.use(found)
            received = source.shapes[found]
            if received != shape:
                problems.append(
                    f"  {found}: expected shape {list(shape)}, received {list(received)}"
                )
            parts.append(found)
        plan.append((weight, parts, transposed))
    if problems:
        raise CheckpointError(
            f"{source.path} does not fit the configuration:\n" + "\n".join(problems)
        )
    for weight, parts, transposed in plan:
        arrays = [source.read(name) for name in parts]
        for name, values in zip(parts, arrays):
            if not np.issubdtype(values.dtype, np.floating):
                raise CheckpointError(
                    f"{source.path}: {name} must hold floating-point numbers. "
                    f"Received: {values.dtype}"
                )
        arrays = [values.T if transposed else values for values in arrays]
        weight.variable.assign(np.concatenate(arrays, axis=-1) if len(arrays) > 1 else arrays[0])
    unused = names.unused()
    if unused:
        _logger.info("%s: not used: %s", source.path, ", ".join(unused))


def _part_shape(weight, parts, transposed):
    """The shape that each of `parts` equal tensors has in the file."""
    shape = tuple(weight.variable.shape)
    shape = (*shape[:-1], shape[-1] // parts)
    return tuple(reversed(shape)) if transposed else shape
