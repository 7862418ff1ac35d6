"""NumPy's `.npy` files, written so that a full disk is noticed."""

import os

import numpy as np


def save_array(path: str | os.PathLike, array: np.ndarray) -> None:
    """Writes an array as `numpy.save` does.

    Args:
        path: The file, its ending included.
        array: The array.

    Raises:
        OSError: If it cannot be written. (`numpy.save` into a file ignores the error of its last
            block and leaves a file cut short.)
    """
    with open(path, "wb") as file:
        np.save(_OnlyWrites(file), array)


class _OnlyWrites:
    """Not a file to NumPy, which therefore hands its bytes to `write`."""

    def __init__(self, file):
        self.write = file.write
