"""The interface of the readers: the named tensors of a file, independent of its format."""

import contextlib
from typing import Protocol

import numpy as np

from bert_tf.errors import CheckpointError


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
        """Returns the values of one tensor, with the dtype of the file."""


def tensor_error(
    source: TensorSource, name: str, expected: str, received: object
) -> CheckpointError:
    """Returns the error for a tensor of a file that is not as expected."""
    return CheckpointError(f"`{name}` in {source.path} must {expected}. Received: {received}")


@contextlib.contextmanager
def complete_file(path: str, kind: str, errors: tuple[type[Exception], ...] = (Exception,)):
    """Turns errors of a library, which can be of many types for damaged files, into ours."""
    try:
        yield
    except CheckpointError:
        raise
    except errors as error:
        raise CheckpointError(
            f"{path} must be {kind}. Received: {error}. Download it again."
        ) from None


class JoinedSource:
    """The tensors of several files, of which no two have the same name. A `TensorSource`."""

    def __init__(self, path: str, sources: list[TensorSource]):
        self.path = path
        self.format = sources[0].format
        self._owners = {}
        for source in sources:
            for name in source.shapes:
                owner = self._owners.setdefault(name, source)
                if owner is not source:
                    raise CheckpointError(
                        f"{path} must hold every tensor once. Received: {name} in {owner.path} and "
                        f"in {source.path}"
                    )
        self.shapes = {name: source.shapes[name] for name, source in self._owners.items()}

    def read(self, name: str) -> np.ndarray:
        return self._owners[name].read(name)
