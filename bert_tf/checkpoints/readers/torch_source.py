"""Reads PyTorch's `pytorch_model.bin` without PyTorch and without executing anything.

There are two file formats: the zip archive that `torch.save` has written since PyTorch 1.6, and the
older sequence of pickles followed by the raw data, which most checkpoints from 2019 use.

A pickle is a program for a small stack machine, and two of its instructions import and call
arbitrary objects. The interpreter here implements neither: names stay strings, and the only calls
it accepts are the few that state dicts consist of, which it evaluates itself. All others are
refused with an error that names them.

Reference: Python's pickletools (the instructions), torch/_utils.py (`_rebuild_tensor_v2`),
torch/serialization.py (`_save` and `_legacy_save`).
"""

import io
import math
import os
import pickletools
import sys
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np

from bert_tf.base.file_errors import file_error, tensor_error
from bert_tf.base.regular_files import open_regular
from bert_tf.checkpoints.readers.stored_zip import StoredZip, map_file, release_pages
from bert_tf.errors import CheckpointError

# PyTorch's storage classes -> NumPy's (or ml_dtypes') name of their elements.
STORAGE_TYPES = {
    "torch.FloatStorage": "float32",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.DoubleStorage": "float64",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
}
_ORDERED_DICT = "collections.OrderedDict"
_TENSOR = "torch._utils._rebuild_tensor_v2"
_PARAMETERS = ("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")


class StoredTensor(NamedTuple):
    """The place of a tensor's values in a storage; `numel`, offset and strides are in elements."""

    dtype: str
    key: str
    numel: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Name(NamedTuple):
    """The name of an object that a pickle would import."""

    name: str


class _Storage(NamedTuple):
    dtype: str
    key: str
    numel: int


_MARK = object()


# An instruction takes 1 byte in the file and up to 100 in memory. BERT-large has under 50,000.
_MOST_INSTRUCTIONS = 1_000_000


def read_pickle(file: BinaryIO, path: str) -> Any:
    """Reads one pickle from the position of a file, and leaves the file after it.

    The value consists of dictionaries, lists, tuples, strings, numbers and `StoredTensor`s. Raises
    `CheckpointError` if it is damaged or contains anything that is not part of a state dict.
    """
    try:
        return _Interpreter(path).run(file)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged pickle raises many types
        received = f"{type(error).__name__}: {error}"
        raise file_error(path, "be a complete PyTorch state dict", received) from None


class _Interpreter:
    def __init__(self, path):
        self._path = path
        self._stack = []
        self._memo = {}

    def run(self, file):
        stack, memo = self._stack, self._memo
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            if count > _MOST_INSTRUCTIONS:
                raise ValueError(f"more than {_MOST_INSTRUCTIONS:,} instructions")
            match opcode.name:
                case "PROTO" | "FRAME":
                    pass
                case "STOP":
                    return stack.pop()
                case name if name in _CONSTANTS:
                    stack.append(_CONSTANTS[name]())
                case name if name in _VALUES:
                    stack.append(argument)
                case "BINPUT" | "LONG_BINPUT":
                    memo[argument] = stack[-1]
                case "MEMOIZE":
                    memo[len(memo)] = stack[-1]
                case "BINGET" | "LONG_BINGET":
                    stack.append(memo[argument])
                case "GLOBAL":
                    stack.append(self._name(argument.replace(" ", ".", 1)))
                case "STACK_GLOBAL":
                    name, module = _expect(stack.pop(), str), _expect(stack.pop(), str)
                    stack.append(self._name(f"{module:.100}.{name:.100}"))
                case "TUPLE":
                    stack.append(tuple(self._pop_to_mark()))
                case "TUPLE1" | "TUPLE2" | "TUPLE3":
                    stack.append(self._pop_tuple(int(opcode.name[-1])))
                case "APPEND":
                    value = stack.pop()
                    _expect(stack[-1], list).append(value)
                case "APPENDS":
                    values = self._pop_to_mark()
                    _expect(stack[-1], list).extend(values)
                case "SETITEM":
                    self._set_items(self._pop_tuple(2))
                case "SETITEMS":
                    self._set_items(self._pop_to_mark())
                case "BINPERSID":
                    stack.append(self._storage(*_expect(stack.pop(), tuple)))
                case "BUILD":
                    # The `_metadata` of an OrderedDict: module versions, which are not needed here.
                    stack.pop()
                    _expect(stack[-1], dict)
                case "REDUCE":
                    arguments = _expect(stack.pop(), tuple)
                    stack.append(self._call(_expect(stack.pop(), _Name).name, arguments))
                case other:
                    self._refuse(f"the pickle instruction {other}")
        raise ValueError("the pickle does not end")

    def _refuse(self, what):
        advice = "bert_tf does not run code from checkpoints. Save the weights as safetensors."
        expected = "hold the weights of a model and nothing else"
        raise file_error(self._path, expected, f"{what}. {advice}")

    def _pop_to_mark(self):
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _name(self, name):
        if name not in STORAGE_TYPES and name not in (_ORDERED_DICT, _TENSOR, *_PARAMETERS):
            self._refuse(f"a pickle that would import {name}")
        return _Name(name)

    def _pop_tuple(self, count):
        items = tuple(self._stack[-count:])
        if len(items) != count or any(item is _MARK for item in items):
            raise ValueError("the pickle's stack is too short")
        del self._stack[-count:]
        return items

    def _set_items(self, items):
        target = _expect(self._stack[-1], dict)
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Hashing maliciously nested tuples could take forever.
            if not isinstance(key, (str, int)):
                self._refuse(f"a dictionary with keys of type {type(key).__name__}")
            target[key] = value

    def _storage(self, kind, storage, key, _location, numel, *_):
        if kind != "storage" or not isinstance(storage, _Name):
            self._refuse("a persistent object that is not a storage")
        if storage.name not in STORAGE_TYPES or not isinstance(key, str):
            self._refuse(f"a storage of type {storage.name}")
        return _Storage(STORAGE_TYPES[storage.name], key, _count(numel))

    def _call(self, function, arguments):
        if function == _ORDERED_DICT:
            if arguments and arguments != ([],):
                self._refuse("an OrderedDict that is built with items")
            return {}
        if function in _PARAMETERS:
            return _expect(arguments[0], StoredTensor)
        if function != _TENSOR:
            self._refuse(f"a pickle that would call {function}")
        storage, offset, shape, strides, *_ = arguments
        _expect(storage, _Storage)
        shape = tuple(map(_count, _expect(shape, tuple)))
        strides = tuple(map(_count, _expect(strides, tuple)))
        if len(shape) != len(strides):
            raise ValueError("a tensor must have as many strides as dimensions")
        return StoredTensor(*storage, _count(offset), shape, strides)


def _expect(value, kind):
    if type(value) is not kind:
        raise ValueError(f"expected a {kind.__name__} in the pickle")
    return value


def _count(value):
    if _expect(value, int) < 0:
        raise ValueError("sizes must be non-negative integers")
    return value


_CONSTANTS = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "MARK": lambda: _MARK,
}
_VALUES = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_VALUES |= {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}


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
