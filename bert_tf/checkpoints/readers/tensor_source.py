"""Named tensors in a file, whatever the file's format."""

from typing import Protocol

import numpy as np

from bert_tf.errors import CheckpointError


class TensorSource(Protocol):
    """What a reader of one file format offers.

    Attributes:
        path: The file or directory, for messages.
        format: The column of the table of weight names that it follows.
        shapes: Shape of every tensor, by name; known without loading the tensors.
    """

    path: str
    format: str
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """The values of one tensor, in the file's own type.

        Raises:
            CheckpointError: If the values are damaged.
        """


class JoinedSource:
    """Several files that together are one checkpoint. A `TensorSource`.

    Args:
        path: What to call the whole in messages.
        sources: The files; a tensor is in one of them.

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
                        f"{path}: expected every tensor once. Received: {name} in "
                        f"{self._owners[name].path} and in {source.path}"
                    )
                self._owners[name] = source
                self.shapes[name] = shape

    def read(self, name: str) -> np.ndarray:
        return self._owners[name].read(name)
