"""Reads the pickle of a PyTorch state dict without executing anything.

A pickle is a program for a small stack machine, and two of its instructions import and call
arbitrary objects. This interpreter implements neither: names stay strings, and the only calls it
accepts are the few that state dicts consist of, which it evaluates itself. All others are refused
with an error that names them.

Reference: Python's pickletools (the instructions), torch/_utils.py (`_rebuild_tensor_v2`).
"""

import dataclasses
import pickletools
from typing import Any, BinaryIO

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


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """The place of a tensor's values in a storage; `numel`, offset and strides are in elements."""

    dtype: str
    key: str
    numel: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Name:
    """The name of an object that a pickle would import."""

    name: str


@dataclasses.dataclass(frozen=True)
class _Storage:
    dtype: str
    key: str
    numel: int


_MARK = object()


def read_pickle(file: BinaryIO, path: str) -> Any:
    """Reads one pickle.

    Args:
        file: A file at the position of the pickle's first byte. Afterwards it is at the first byte
            after the pickle.
        path: The file, for error messages.

    Returns:
        The value: dictionaries, lists, tuples, strings, numbers and `StoredTensor`s.

    Raises:
        CheckpointError: If the pickle is damaged or contains anything that is not part of a state
            dict.
    """
    try:
        return _Interpreter(path).run(file)
    except (
        ValueError,
        TypeError,
        IndexError,
        KeyError,
        AttributeError,
        OverflowError,
        EOFError,
    ) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"{path} must be a complete PyTorch state dict. Received: {type(error).__name__}: "
            f"{error}"
        ) from None


class _Interpreter:
    def __init__(self, path):
        self._path = path
        self._stack = []
        self._memo = {}

    def run(self, file):
        for opcode, argument, _ in pickletools.genops(file):
            if opcode.name == "STOP":
                return self._stack.pop()
            if opcode.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[opcode.name]())
            elif opcode.name in _VALUES:
                self._stack.append(argument)
            elif opcode.name in _HANDLERS:
                _HANDLERS[opcode.name](self, argument)
            elif opcode.name not in ("PROTO", "FRAME"):
                self._refuse(f"the pickle instruction {opcode.name}")
        raise ValueError("the pickle does not end")

    def _refuse(self, what):
        raise CheckpointError(
            f"{self._path} must hold the weights of a model and nothing else. Received: {what}. "
            "bert_tf does not run code from checkpoints. Save the weights as safetensors."
        )

    def _pop_to_mark(self):
        items = []
        while (item := self._stack.pop()) is not _MARK:
            items.append(item)
        return items[::-1]

    def _put(self, index):
        self._memo[index] = self._stack[-1]

    def _memoize(self, _):
        self._memo[len(self._memo)] = self._stack[-1]

    def _get(self, index):
        self._stack.append(self._memo[index])

    def _global(self, argument):
        module, name = argument.split(" ", 1)
        self._stack.append(self._name(f"{module}.{name}"))

    def _stack_global(self, _):
        name, module = self._stack.pop(), self._stack.pop()
        if not isinstance(module, str) or not isinstance(name, str):
            self._refuse("a pickle with a name that is not text")
        self._stack.append(self._name(f"{module:.100}.{name:.100}"))

    def _name(self, name):
        if name not in STORAGE_TYPES and name not in (_ORDERED_DICT, _TENSOR, *_PARAMETERS):
            self._refuse(f"a pickle that would import {name}")
        return _Name(name)

    def _tuple_of_marked(self, _):
        self._stack.append(tuple(self._pop_to_mark()))

    def _tuple_of(self, count):
        items = self._stack[-count:]
        if len(items) != count or any(item is _MARK for item in items):
            raise ValueError("the pickle's stack is too short")
        del self._stack[-count:]
        self._stack.append(tuple(items))

    def _append(self, _):
        value = self._stack.pop()
        self._expect(self._stack[-1], list).append(value)

    def _appends(self, _):
        values = self._pop_to_mark()
        self._expect(self._stack[-1], list).extend(values)

    def _set_item(self, _):
        value, key = self._stack.pop(), self._stack.pop()
        self._expect(self._stack[-1], dict)[self._key(key)] = value

    def _set_items(self, _):
        values = self._pop_to_mark()
        target = self._expect(self._stack[-1], dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[self._key(key)] = value

    def _key(self, key):
        # Hashing maliciously nested tuples could take forever.
        if not isinstance(key, (str, int)):
            self._refuse(f"a dictionary with keys of type {type(key).__name__}")
        return key

    def _expect(self, value, kind):
        if type(value) is not kind:
            raise ValueError(f"expected a {kind.__name__} on the pickle's stack")
        return value

    def _persistent_id(self, _):
        kind, storage, key, _location, numel, *_ = self._expect(self._stack.pop(), tuple)
        if kind != "storage" or not isinstance(storage, _Name):
            self._refuse("a persistent object that is not a storage")
        if storage.name not in STORAGE_TYPES or not isinstance(key, str):
            self._refuse(f"a storage of type {storage.name}")
        self._stack.append(_Storage(STORAGE_TYPES[storage.name], key, _count(numel)))

    def _build(self, _):
        # The `_metadata` of an OrderedDict: module versions, which are not needed here.
        self._stack.pop()
        self._expect(self._stack[-1], dict)

    def _reduce(self, _):
        arguments = self._expect(self._stack.pop(), tuple)
        function = self._expect(self._stack.pop(), _Name).name
        if function == _ORDERED_DICT:
            if arguments and arguments != ([],):
                self._refuse("an OrderedDict that is built with items")
            self._stack.append({})
        elif function == _TENSOR:
            storage, offset, shape, strides, *_ = arguments
            storage = self._expect(storage, _Storage)
            shape = tuple(_count(size) for size in self._expect(shape, tuple))
            strides = tuple(_count(step) for step in self._expect(strides, tuple))
            if len(shape) != len(strides):
                raise ValueError("a tensor must have as many strides as dimensions")
            self._stack.append(
                StoredTensor(
                    storage.dtype, storage.key, storage.numel, _count(offset), shape, strides
                )
            )
        elif function in _PARAMETERS:
            self._stack.append(self._expect(arguments[0], StoredTensor))
        else:
            self._refuse(f"a pickle that would call {function}")


def _count(value):
    if type(value) is not int or value < 0:
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
_VALUES = {
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
}
_HANDLERS = {
    "BINPUT": _Interpreter._put,
    "LONG_BINPUT": _Interpreter._put,
    "MEMOIZE": _Interpreter._memoize,
    "BINGET": _Interpreter._get,
    "LONG_BINGET": _Interpreter._get,
    "GLOBAL": _Interpreter._global,
    "STACK_GLOBAL": _Interpreter._stack_global,
    "TUPLE": _Interpreter._tuple_of_marked,
    "TUPLE1": lambda self, _: self._tuple_of(1),
    "TUPLE2": lambda self, _: self._tuple_of(2),
    "TUPLE3": lambda self, _: self._tuple_of(3),
    "APPEND": _Interpreter._append,
    "APPENDS": _Interpreter._appends,
    "SETITEM": _Interpreter._set_item,
    "SETITEMS": _Interpreter._set_items,
    "BINPERSID": _Interpreter._persistent_id,
    "BUILD": _Interpreter._build,
    "REDUCE": _Interpreter._reduce,
}
