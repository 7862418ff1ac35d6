"""Writes NumPy's `.npy` files so that a full disk raises an error."""

import os

import numpy as np


def save_array(path: str | os.PathLike, array: np.ndarray) -> None:
    """Writes an array as `numpy.save` does.

    Args:
        path: The file, including its ending.
        array: The array.

    Raises:
        OSError: If the file cannot be written. (`numpy.save` to a file ignores an error in the last
            block and leaves an incomplete file.)
    """
    with open(path, "wb") as file:
        np.save(_OnlyWrites(file), array)


class _OnlyWrites:
    """An object that NumPy does not treat as a file, so that it calls `write`."""

    def __init__(self, file):
        self.write = file.write
