"""Writes arrays to files: NumPy's `.npy` and safetensors. A full disk raises an OSError."""

import errno
import json
import os
import types
import zlib

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

# The key of a safetensors file's `__metadata__` for {tensor: crc32 of its bytes}.
CHECKSUMS_KEY = "bert_tf_crc32"


def save_array(path: str | os.PathLike, array: np.ndarray) -> None:
    """Writes an array as `numpy.save` does, to a file whose name includes the ending.

    Raises:
        OSError: If the file cannot be written.
    """
    with open(path, "wb") as file:  # `numpy.save` to a file ignores an error in the last block
        np.save(types.SimpleNamespace(write=file.write), array)


def write_safetensors(
    path: str | os.PathLike, tensors: dict[str, np.ndarray], checksums: bool = True
) -> None:
    """Writes tensors by name, in C order, to a safetensors file, with `checksums` in its metadata.

    Raises:
        OSError: If the file cannot be written.
    """
    metadata = None
    if checksums:
        sums = {name: checksum(values) for name, values in tensors.items()}
        metadata = {"format": "pt", CHECKSUMS_KEY: json.dumps(sums)}
    try:
        save_file(tensors, path, metadata=metadata)
    except SafetensorError as error:
        raise OSError(errno.EIO, str(error), os.fspath(path)) from error


def checksum(values: np.ndarray) -> int:
    """Returns the crc32 of an array's bytes, in C order."""
    return zlib.crc32(np.ascontiguousarray(values).reshape(-1).view(np.uint8))
