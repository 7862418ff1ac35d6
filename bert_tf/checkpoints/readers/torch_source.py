"""Reads PyTorch's `pytorch_model.bin` without PyTorch and without executing anything.

There are two file formats: the zip archive that `torch.save` has written since PyTorch 1.6, and the
older sequence of pickles followed by the raw data, which most checkpoints from 2019 use.

Reference: torch/serialization.py, `_save` and `_legacy_save`.
"""

import io
import math
import os
import sys

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np

from bert_tf.base.file_errors import file_error, tensor_error
from bert_tf.base.regular_files import open_regular
from bert_tf.checkpoints.readers.stored_zip import StoredZip, map_file, release_pages
from bert_tf.checkpoints.readers.torch_pickle import StoredTensor, read_pickle

_ZIP_SIGNATURE = b"PK\x03\x04"
_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C  # torch/serialization.py, MAGIC_NUMBER
_LEGACY_PROTOCOL = 1001
_COUNT_SIZE = 8  # in the legacy format, each storage begins with its number of elements


class TorchSource:
    """Reads one `.bin` or `.pt` file with a state dict. A `TensorSource`.

    Raises:
        CheckpointError: If the file is damaged, is not a state dict, or its pickle would run code.
    """

    format = "huggingface"

    def __init__(self, path: str):
        self.path = path
        if sys.byteorder != "little":
            raise file_error(self.path, "be read on a little-endian machine", f"{sys.byteorder=}")
        try:
            with open_regular(path) as file:
                is_zip = file.read(len(_ZIP_SIGNATURE)) == _ZIP_SIGNATURE
        except OSError as error:
            raise file_error(self.path, "be a PyTorch file", error.strerror) from None
        self._tensors = self._open_zip() if is_zip else self._open_legacy()
        if not self._tensors:
            raise file_error(self.path, "hold a state dict", "no tensors")
        self.shapes = {name: tensor.shape for name, tensor in self._tensors.items()}
        for name, tensor in self._tensors.items():
            if math.prod(tensor.shape) > tensor.numel:
                expected = f"not be larger than its storage of {tensor.numel} numbers"
                raise tensor_error(self, name, expected, f"shape={tensor.shape}")
        # Storages are compared with the file only when they are read, after the model is built.
        if sum(math.prod(shape) for shape in self.shapes.values()) > os.path.getsize(path):
            received = "tensors that are larger than the file"
            raise file_error(self.path, "be a complete file", received)

    def _open_zip(self):
        archive = StoredZip(self.path)
        pickles = [name for name in archive.names if name.endswith("data.pkl")]
        if len(pickles) != 1:
            received = f"{len(pickles)} of them"
            raise file_error(self.path, "hold one data.pkl, as torch.save writes it", received)
        folder = pickles[0].removesuffix("data.pkl")
        order = f"{folder}byteorder"
        if order in archive.names and bytes(archive.view(order)) != b"little":
            raise file_error(self.path, "hold numbers in little-endian order", "another order")
        self._release = archive.release
        self._storage = lambda key: archive.view(f"{folder}data/{key}")
        return _stored_tensors(read_pickle(io.BytesIO(archive.view(pickles[0])), self.path))

    def _open_legacy(self):
        try:
            content = map_file(self.path)
        except ValueError:
            raise file_error(
                self.path, "be a PyTorch file", "an empty file. Download it again."
            ) from None
        if read_pickle(content, self.path) != _LEGACY_MAGIC:
            raise file_error(self.path, "be a file that torch.save wrote", "another pickle")
        if (version := read_pickle(content, self.path)) != _LEGACY_PROTOCOL:
            received = version if isinstance(version, int) else type(version).__name__
            expected = f"have version {_LEGACY_PROTOCOL} of torch.save's format"
            raise file_error(self.path, expected, received)
        system = read_pickle(content, self.path)
        if not isinstance(system, dict) or system.get("little_endian") is not True:
            raise file_error(self.path, "hold numbers in little-endian order", "another order")
        tensors = _stored_tensors(read_pickle(content, self.path))
        keys = read_pickle(content, self.path)
        if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
            raise file_error(self.path, "be a complete PyTorch file", "no list of storages")
        self._release = lambda: release_pages(content)
        sizes = {one.key: (one.numel, np.dtype(one.dtype).itemsize) for one in tensors.values()}
        if missing := sizes.keys() - set(keys):
            received = f"no storage {min(missing)!r:.200}"
            raise file_error(self.path, "hold a storage for every tensor", received)
        self._storage = self._legacy_storages(memoryview(content), content.tell(), keys, sizes).get
        return tensors

    def _legacy_storages(self, content, start, keys, sizes):
        """Returns the bytes of the storages, which follow each other in the order of `keys`."""
        views = {}
        for key in keys:
            if key not in sizes:
                received = f"storage {key!r:.200} without a tensor"
                raise file_error(self.path, "hold a tensor for every storage", received)
            numel, item_size = sizes[key]
            found = int.from_bytes(content[start : start + _COUNT_SIZE], "little")
            start += _COUNT_SIZE
            views[key] = content[start : start + numel * item_size]
            start += numel * item_size
            if found != numel or len(views[key]) != numel * item_size:
                received = f"a truncated or damaged storage {key!r:.200}. Download it again."
                raise file_error(self.path, "be a complete PyTorch file", received)
        return views

    def read(self, name: str) -> np.ndarray:
        self._release()
        tensor = self._tensors[name]
        dtype = np.dtype(tensor.dtype)
        size = tensor.numel * dtype.itemsize
        values = np.frombuffer(self._storage(tensor.key), np.uint8)
        if values.nbytes < size:
            received = f"{values.nbytes} of {size} bytes"
            raise tensor_error(self, name, "be stored in full", received)
        values = values[:size].view(dtype)
        last = tensor.offset
        last += sum((size - 1) * step for size, step in zip(tensor.shape, tensor.strides))
        if 0 in tensor.shape or last >= tensor.numel:
            expected = f"be within its storage of {tensor.numel} numbers"
            received = f"offset={tensor.offset}, shape={tensor.shape}, strides={tensor.strides}"
            raise tensor_error(self, name, expected, received)
        return np.lib.stride_tricks.as_strided(
            values[tensor.offset :],
            tensor.shape,
            [step * dtype.itemsize for step in tensor.strides],
            writeable=False,
        )


def _stored_tensors(state):
    """Returns the tensors of a state dict, which may be an entry of another dictionary."""
    if isinstance(state, dict) and isinstance(state.get("state_dict"), dict):
        state = state["state_dict"]
    if not isinstance(state, dict):
        return {}
    return {
        name: value
        for name, value in state.items()
        if isinstance(name, str) and isinstance(value, StoredTensor)
    }
