"""The interface of the readers: the named tensors of a file, independent of its format."""

from typing import Protocol

import numpy as np

from bert_tf.errors import CheckpointError


class TensorSource(Protocol):
    """The interface of a reader of one file format.

    Attributes:
        path: The file or directory, for error messages.
        format: The format of the tensors' names, as in the table of weight names.
        shapes: The shape of every tensor, by name; available without loading the tensors.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """The values of one tensor, with the dtype of the file.

        Raises:
            CheckpointError: If the values are damaged.
        """


class JoinedSource:
    """A checkpoint that consists of several files. A `TensorSource`.

    Args:
        path: The path of the checkpoint, for error messages.
        sources: The files. Every tensor is in exactly one of them.

    Raises:
        CheckpointError: If two files hold a tensor of the same name.
    """

    def __init__(self, path: str, sources: list[TensorSource]):
        self.path = path
        self.format = sources[0].format
        self.shapes = {}
        self._owners = {}
        for source in sources:
            for name, shape in source.shapes.items():
                if name in self._owners:
                    raise CheckpointError(
                        f"{path} must hold every tensor once. Received: {name} in "
                        f"{self._owners[name].path} and in {source.path}"
                    )
                self._owners[name] = source
                self.shapes[name] = shape

    def read(self, name: str) -> np.ndarray:
        return self._owners[name].read(name)
