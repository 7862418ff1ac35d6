"""The inputs and outputs of a SavedModel, read from its signatures."""

import dataclasses
import functools
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.server.errors import invalid

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY
# Names of strings that hold bytes: TensorFlow Serving's suffix, and serialised tf.Examples.
BINARY_SUFFIX = "_bytes"
BINARY_NAMES = ("examples", "inputs")
# For example, `entity_count` is the number of values in a row of `entity_text` before the padding.
COUNT_SUFFIX = "_count"
_MOST_DIMENSIONS = 64  # of a NumPy array
_POINTER = 8  # bytes of a string in an array, without its content


@dataclasses.dataclass(frozen=True)
class TensorSpec:
    """An input or output."""

    dtype: tf.DType
    shape: tuple[int | None, ...] | None  # None for a variable dimension, or for an unknown rank

    @functools.cached_property
    def has_rows(self) -> bool:
        """Whether the first dimension is variable: one row per example."""
        return bool(self.shape) and self.shape[0] is None

    @functools.cached_property
    def is_text(self) -> bool:
        """Whether the values are strings; TensorFlow compares dtypes slowly."""
        return self.dtype == tf.string

    def require(self, name: str, shape: Sequence[int]) -> None:
        """Checks the shape of an array.

        Raises:
            RequestError: If it does not match, or has more dimensions than NumPy supports.
        """
        fits = len(shape) <= _MOST_DIMENSIONS
        if self.shape is not None:
            fits = len(shape) == len(self.shape) and all(
                want in (None, size) for want, size in zip(self.shape, shape)
            )
        if not fits:
            raise invalid(f"`{name}` must be {self}. Received: {self.dtype.name} {list(shape)}")

    def __str__(self) -> str:
        sizes = (None,) if self.shape is None else self.shape
        shape = ",".join("?" if size is None else str(size) for size in sizes)
        return f"{self.dtype.name} [{shape}]"


@dataclasses.dataclass(frozen=True)
class Signature:
    """A function of a SavedModel; the inputs and outputs are sorted by name."""

    name: str
    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]

    @functools.cached_property
    def has_rows(self) -> bool:
        """Whether every input and output has one row per example."""
        specs = (*self.inputs.values(), *self.outputs.values())
        return bool(self.inputs) and all(spec.has_rows for spec in specs)

    @functools.cached_property
    def joins_rows(self) -> bool:
        """Whether rows of different requests may be computed together.

        An output with another variable dimension is as wide as the widest row of its batch, so its
        result would depend on the other requests, unless a `_count` output gives the number of
        values before the padding.
        """
        return self.has_rows and all(
            None not in spec.shape[1:] or (None not in spec.shape[2:] and name in self.counts)
            for name, spec in self.outputs.items()
        )

    @functools.cached_property
    def counts(self) -> dict[str, str]:
        """The outputs that give the numbers of values per row of other outputs, by their names."""
        counts = {name: self._count_of(name) for name in self.outputs}
        return {name: count for name, count in counts.items() if count is not None}

    def _count_of(self, output):
        spec = self.outputs[output]
        if not spec.has_rows or len(spec.shape) < 2 or spec.shape[1] is not None:
            return None
        words = output.split("_")
        names = ("_".join(words[:end]) + COUNT_SUFFIX for end in range(len(words), 0, -1))
        counts = (name for name in names if name in self.outputs)
        return next((name for name in counts if self.outputs[name].shape == (None,)), None)

    def trimmed(self, outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the outputs of some rows of a batch, with the padding of these rows alone."""
        trimmed = dict(outputs)
        for name, count in self.counts.items():
            trimmed[name] = outputs[name][:, : int(outputs[count].max(initial=0))]
        return trimmed

    def least_answer_bytes(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Estimates the minimum size of the outputs for a request, in bytes, from the shapes.

        A variable dimension counts as the same one of the inputs, as for one value per token, but
        not of floating-point inputs (audio, images), whose outputs are usually smaller.
        """
        sizes = [array.shape for array in arrays.values() if array.dtype.kind != "f"]
        total = 0
        for spec in self.outputs.values():
            count = 1
            for place, size in enumerate(spec.shape or ()):
                found = [shape[place] for shape in sizes if len(shape) > place]
                count *= max(found, default=1) if size is None else size
            total += count * (_POINTER if spec.is_text else spec.dtype.size)
        return total

    def checked_rows(self, arrays: Mapping[str, np.ndarray]) -> int:
        """Returns the number of rows of a request.

        Raises:
            RequestError: If the inputs have different numbers of rows, or there are no rows.
        """
        if not self.has_rows:
            return 1
        counts = {name: len(arrays[name]) for name in self.inputs}
        if len(set(counts.values())) > 1:
            raise invalid(f"The inputs must have the same number of rows. Received: {counts}")
        rows = next(iter(counts.values()))
        if rows == 0:
            raise invalid("The inputs must have at least one row. Received: 0 rows")
        return rows


def bytes_of(arrays: Mapping[str, np.ndarray]) -> int:
    """Returns the memory of arrays in bytes, including their strings, also if they share them."""
    texts = (array for array in arrays.values() if array.dtype == object)
    strings = {id(value): value for array in texts for value in array.flat}
    size = sum(array.nbytes for array in arrays.values())
    return size + sum(map(sys.getsizeof, strings.values()))


def is_binary(name: str) -> bool:
    """Returns whether a string input or output with this name holds bytes instead of text."""
    return name.endswith(BINARY_SUFFIX) or name in BINARY_NAMES


def text_length(name: str, data: bytes) -> int:
    """Returns the number of characters of a string of an input; raises if it is not UTF-8."""
    try:
        return len(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise invalid(
            f"`{name}` must be text in UTF-8. Received: {error.reason} at byte {error.start}"
        ) from None


def check_length(name: str, length: int, most: int) -> None:
    """Raises a `RequestError` if a string of an input has too many characters."""
    if length > most:
        raise invalid(
            f"`{name}` must have at most {most} characters. Received: {length}.",
            flag="max_text_length",
        )


def signatures_of(meta_graph) -> dict[str, Signature]:
    """Returns the signatures of a `MetaGraphDef` that a client can call."""
    return {
        name: Signature(name, _specs(definition.inputs), _specs(definition.outputs))
        for name, definition in meta_graph.signature_def.items()
        if not name.startswith("__")  # TensorFlow's signatures for initialization
    }


def _specs(tensors):
    specs = {}
    for name in sorted(tensors):
        shape = tf.TensorShape(tensors[name].tensor_shape)
        dimensions = None if shape.rank is None else tuple(shape.as_list())
        specs[name] = TensorSpec(tf.as_dtype(tensors[name].dtype), dimensions)
    return specs
