"""The interface of the readers: the named tensors of a file, independent of its format."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from bert_tf.base.file_errors import file_error, tensor_error

if TYPE_CHECKING:  # a list of programs needs the specs of tasks, which import this, but no NumPy
    import numpy as np


class TensorSource(Protocol):
    """A reader of one file format.

    Attributes:
        path: The file or directory, for error messages.
        format: The format of the tensors' names, as in the table of weight names.
        shapes: The shape of every tensor, by name; available without loading the tensors.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """Returns the values of one tensor, with the dtype of the file.

        Raises:
            CheckpointError: If the values are damaged.
        """


class JoinedSource:
    """The tensors of several files, of which no two have the same name. A `TensorSource`.

    Raises:
        CheckpointError: If two files hold a tensor of the same name.
    """

    def __init__(self, path: str, sources: list[TensorSource]):
        self.path = path
        self.format = sources[0].format
        self._owners = {}
        for source in sources:
            for name in source.shapes:
                owner = self._owners.setdefault(name, source)
                if owner is not source:
                    received = f"{name} in {owner.path} and in {source.path}"
                    raise file_error(path, "hold every tensor once", received)
        self.shapes = {name: source.shapes[name] for name, source in self._owners.items()}

    def read(self, name: str) -> np.ndarray:
        return self._owners[name].read(name)


class RenamedSource:
    """The tensors of another source by other names. A `TensorSource`.

    Args:
        source: The other source.
        names: Our names -> those of the source.
        format: The format of our names; None for that of the source.
        in_file: Returns what a file would call a tensor that it lacks, for error messages.
        change: Returns the values of a tensor, by our name, for those in the file; None for those.

    Attributes:
        aliases: Our names -> the one of several names that the source has for a tensor.
    """

    def __init__(
        self,
        source: TensorSource,
        names: Mapping[str, str],
        format: str | None = None,
        in_file: Callable[[str], str] = str,
        change: Callable[[str, np.ndarray], np.ndarray] | None = None,
    ):
        self.path, self.format = source.path, format or source.format
        self._source, self._names, self._in_file = source, names, in_file
        self._change = change
        shapes, aliases = source.shapes, getattr(source, "aliases", {})
        self.shapes = {name: shapes[theirs] for name, theirs in names.items()}
        self.aliases = {name: aliases.get(theirs, theirs) for name, theirs in names.items()}

    def read(self, name: str) -> np.ndarray:
        values = self._source.read(self._names[name])
        return values if self._change is None else self._change(name, values)

    def name_in_file(self, name: str) -> str:
        """Returns what the file calls a tensor, or would if it held it."""
        return self._names.get(name) or self._in_file(name)


class SplitSource:
    """Another source, of which some tensors are cut into equal parts. A `TensorSource`.

    Args:
        source: The other source.
        parts: The names of the tensors that are cut along their first axis -> those of the parts.

    Raises:
        CheckpointError: If a tensor cannot be cut into so many parts.
    """

    def __init__(self, source: TensorSource, parts: Mapping[str, Sequence[str]]):
        self.path, self.format, self._source = source.path, source.format, source
        self._places = {
            part: (name, place, len(names))
            for name, names in parts.items()
            for place, part in enumerate(names)
        }
        self.shapes = {name: source.shapes[name] for name in source.shapes if name not in parts}
        for part, (name, _, count) in self._places.items():
            shape = source.shapes[name]
            if not shape or shape[0] % count:
                raise tensor_error(source, name, f"have {count} equal parts", f"shape={shape}")
            self.shapes[part] = (shape[0] // count, *shape[1:])

    def read(self, name: str) -> np.ndarray:
        if name not in self._places:
            return self._source.read(name)
        whole, place, _ = self._places[name]
        size = self.shapes[name][0]
        return self._source.read(whole)[place * size : (place + 1) * size]


def read_floats(source: TensorSource, name: str) -> np.ndarray:
    """Returns one tensor of a file as float32, which must be finite; a view where possible.

    Raises:
        CheckpointError: If it is damaged, or holds values that are not floating-point or not
            finite.
    """
    import numpy as np

    values = source.read(name)
    if not isinstance(values, np.ndarray) or values.shape != source.shapes[name]:
        expected = f"have the announced shape {source.shapes[name]}"
        received = f"shape={getattr(values, 'shape', None)}. The file is damaged."
        raise tensor_error(source, name, expected, received)
    if values.dtype.name not in ("float32", "float16", "bfloat16", "float64"):
        raise tensor_error(source, name, "hold floating-point numbers", f"dtype={values.dtype}")
    values = values.astype(np.float32, copy=False)
    # The minimum and maximum are NaN if any value is, and need no temporary array.
    if values.size and not np.isfinite(values.min() + values.max()):
        received = "NaN or infinity. The file is damaged."
        raise tensor_error(source, name, "hold finite numbers", received)
    return values
