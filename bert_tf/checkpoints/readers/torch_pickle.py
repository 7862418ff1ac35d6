"""Reads the pickle of a PyTorch state dict without executing anything.

A pickle is a program for a small stack machine, and two of its instructions import and call
arbitrary objects. This interpreter implements neither: names stay strings, and the only calls it
accepts are the few that state dicts consist of, which it evaluates itself. All others are refused
with an error that names them.

Reference: Python's pickletools (the instructions), torch/_utils.py (`_rebuild_tensor_v2`).
"""

import pickletools
from typing import Any, BinaryIO, NamedTuple

from bert_tf.base.file_errors import file_error
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

    Returns:
        The value: dictionaries, lists, tuples, strings, numbers and `StoredTensor`s.

    Raises:
        CheckpointError: If the pickle is damaged or contains anything that is not part of a state
            dict.
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
