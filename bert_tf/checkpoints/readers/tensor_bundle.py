"""TensorFlow's checkpoint files, `<prefix>.index` and `<prefix>.data-0000k-of-0000n`.

The index is a sorted table of a `BundleEntryProto` for each tensor: type, shape, the data file and
the range of bytes in it, and a checksum. TensorFlow's own reader trusts an index whose checksums
are right, and a hostile one ends the process (`Check failed` over a negative dimension). Here every
entry is checked before a tensor is offered, and the numbers are views of the mapped data files.

A partitioned variable has an entry with the list of its slices and no bytes; each slice has an
entry of its own under an encoded key.

Reference: tensorflow/core/util/tensor_bundle/tensor_bundle.{h,cc},
tensorflow/core/protobuf/tensor_bundle.proto; for the keys of slices
tensorflow/core/util/saved_tensor_slice_util.cc and lib/strings/ordered_code.cc.
"""

import math
import mmap
import os

import numpy as np

from bert_tf.checkpoints.readers.crc32c import crc32c, masked
from bert_tf.checkpoints.readers.sstable import read_table
from bert_tf.errors import CheckpointError

_HEADER_KEY = b""
_VERSION = 1  # tensor_bundle.h, kTensorBundleVersion
_MAX_DIMENSIONS = 32  # of a NumPy array, before version 2
_CHECKSUM_SIZE = 4
_MAX_LENGTH_SIZE = 5  # of a varint of 32 bits
# By the name in tensorflow/core/framework/types.proto. Others (variants of datasets, resources) may
# be in a checkpoint, but no weight is one of them.
_NUMPY_TYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    "DT_BFLOAT16": "bfloat16",
    "DT_INT8": "int8",
    "DT_INT16": "int16",
    "DT_INT32": "int32",
    "DT_INT64": "int64",
    "DT_UINT8": "uint8",
    "DT_UINT16": "uint16",
    "DT_UINT32": "uint32",
    "DT_UINT64": "uint64",
    "DT_BOOL": "bool",
}
_STRING = "DT_STRING"


class TensorBundle:
    """The tensors of one checkpoint.

    Args:
        prefix: The path without `.index`.

    Attributes:
        shapes: Shape of every tensor, by name.

    Raises:
        CheckpointError: If a file is missing, or the index is damaged or does not fit the data.
    """

    def __init__(self, prefix: str):
        from google.protobuf.message import DecodeError
        from tensorflow.core.protobuf import tensor_bundle_pb2

        self.path = prefix
        self.shapes = {}
        self._entries = {}
        self._data_sizes = {}
        table = read_table(f"{prefix}.index")
        if _HEADER_KEY not in table:
            raise CheckpointError(f"{prefix}.index is no index of a checkpoint: it has no header")
        try:
            header = tensor_bundle_pb2.BundleHeaderProto.FromString(table.pop(_HEADER_KEY))
            entries = {
                key: tensor_bundle_pb2.BundleEntryProto.FromString(value)
                for key, value in table.items()
            }
        except DecodeError as error:
            raise CheckpointError(f"{prefix}.index is damaged: {error}") from None
        little = tensor_bundle_pb2.BundleHeaderProto.LITTLE
        if header.endianness != little or header.version.min_consumer > _VERSION:
            raise CheckpointError(
                f"{prefix}.index: numbers in little-endian order and version {_VERSION} of the "
                f"format were expected. Received: {header}"
            )
        self._num_shards = header.num_shards
        self._check_extents(entries)
        slices = {_slice_key(key, part) for key, entry in entries.items() for part in entry.slices}
        for key, entry in entries.items():
            self._entries[key] = entry
            if key not in slices:
                self.shapes[self._name(key)] = self._shape(key, entry)
        for key, entry in entries.items():
            self._check_size(key, entry)

    def read(self, name: str) -> np.ndarray:
        """The values of one tensor of numbers; a view of the file where it is not partitioned.

        Raises:
            CheckpointError: If it is damaged, or holds no numbers.
        """
        return self._read(name.encode())

    def read_string(self, name: str, max_bytes: int) -> bytes:
        """The value of a tensor that is one string.

        Raises:
            CheckpointError: If it is damaged, longer than `max_bytes`, or is none.
        """
        key = name.encode()
        entry = self._entries.get(key)
        if entry is None or _type_name(entry) != _STRING or self.shapes[name] or entry.slices:
            raise CheckpointError(f"{self.path}: one string was expected in {name}")
        if entry.size > max_bytes:
            raise CheckpointError(
                f"{self.path}: at most {max_bytes} bytes were expected in {name}. Received: "
                f"{entry.size}"
            )
        # The length as a varint, a checksum of it as uint32, the string. `crc32c` is of the length
        # as uint32, its checksum and the string.
        content = bytes(self._bytes(entry))
        prefix = (
            next((i for i, byte in enumerate(content[:_MAX_LENGTH_SIZE]) if byte < 0x80), 0) + 1
        )
        text = content[prefix + _CHECKSUM_SIZE :]
        length = len(text).to_bytes(4, "little")
        self._require_checksum(
            key, entry, length + content[prefix : prefix + _CHECKSUM_SIZE] + text
        )
        return text

    def _read(self, key):
        entry = self._entries[key]
        type_name = _type_name(entry)
        if type_name not in _NUMPY_TYPES:
            raise CheckpointError(
                f"{self.path}: {_shown(key)} must hold numbers. Received: {type_name}"
            )
        shape = self._shape(key, entry)
        if not entry.slices:
            content = self._bytes(entry)
            self._require_checksum(key, entry, content)
            return np.frombuffer(content, _numpy_type(type_name)).reshape(shape)
        values = np.zeros(shape, _numpy_type(type_name))
        is_filled = np.zeros(shape, bool)
        for part in entry.slices:
            place, _ = self._place(key, shape, part)
            if is_filled[place].any():
                raise CheckpointError(f"{self.path}: the slices of {_shown(key)} overlap")
            values[place] = self._read(_slice_key(key, part))
            is_filled[place] = True
        if not is_filled.all():
            raise CheckpointError(f"{self.path}: the slices of {_shown(key)} leave gaps")
        return values

    def _bytes(self, entry):
        """The bytes of a tensor in its mapped file, which lives as long as they are used."""
        if not entry.size:
            return b""
        with open(self._data_file(entry.shard_id), "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(content)[entry.offset : entry.offset + entry.size]

    def _require_checksum(self, key, entry, content):
        if masked(crc32c(content)) != entry.crc32c:
            raise CheckpointError(
                f"{self.path}: tensor {_shown(key)} is damaged (its checksum differs). Fetch "
                "the file again."
            )

    def _check_extents(self, entries):
        """Every tensor is in its file, and together they are not more than the files."""
        announced = 0
        for key, entry in entries.items():
            if entry.slices:
                continue
            if not 0 <= entry.shard_id < self._num_shards:
                self._refuse(key, f"data file {entry.shard_id} of {self._num_shards}")
            size = self._data_size(entry.shard_id)
            if min(entry.offset, entry.size) < 0 or entry.offset + entry.size > size:
                self._refuse(key, f"{entry.size} bytes at {entry.offset} in a file of {size} bytes")
            announced += entry.size
        if announced > sum(self._data_sizes.values()):
            raise CheckpointError(
                f"{self.path}: the index announces more numbers than there are: {announced} bytes "
                f"in files of {sum(self._data_sizes.values())}"
            )

    def _data_size(self, shard):
        if shard not in self._data_sizes:
            path = self._data_file(shard)
            if not os.path.isfile(path):
                raise CheckpointError(f"{self.path}: {path} was expected. There is no such file.")
            self._data_sizes[shard] = os.path.getsize(path)
        return self._data_sizes[shard]

    def _data_file(self, shard):
        return f"{self.path}.data-{shard:05d}-of-{self._num_shards:05d}"

    def _shape(self, key, entry):
        shape = tuple(dim.size for dim in entry.shape.dim)
        if entry.shape.unknown_rank or len(shape) > _MAX_DIMENSIONS or min(shape, default=0) < 0:
            self._refuse(key, f"the shape {list(shape[: _MAX_DIMENSIONS + 1])}")
        return shape

    def _check_size(self, key, entry):
        """The shape takes as many bytes as there are."""
        type_name, count = _type_name(entry), math.prod(self._shape(key, entry))
        if entry.slices:
            found = 0
            for part in entry.slices:
                _, part_shape = self._place(key, self._shape(key, entry), part)
                slice_entry = self._entries.get(_slice_key(key, part))
                if (
                    slice_entry is None
                    or slice_entry.slices
                    or slice_entry.dtype != entry.dtype
                    or self._shape(key, slice_entry) != part_shape
                ):
                    self._refuse(key, f"no slice {part}")
                found += math.prod(part_shape)
            keys = {_slice_key(key, part) for part in entry.slices}
            if found != count or len(keys) != len(entry.slices):
                self._refuse(key, f"{count} values in {len(keys)} slices of {found}")
        elif type_name in _NUMPY_TYPES:
            if count * _numpy_type(type_name).itemsize != entry.size:
                self._refuse(key, f"{entry.size} bytes of {count} numbers of {type_name}")
        elif count > entry.size:
            self._refuse(key, f"{entry.size} bytes of {count} values of {type_name}")

    def _place(self, key, shape, part):
        """Where a slice is in its tensor, and its shape."""
        place, part_shape = [], []
        if len(part.extent) != len(shape):
            self._refuse(key, f"the slice {part} of the shape {list(shape)}")
        for size, extent in zip(shape, part.extent):
            length = extent.length if extent.HasField("length") else size
            if min(extent.start, length) < 0 or extent.start + length > size:
                self._refuse(key, f"the slice {part} of the shape {list(shape)}")
            place.append(slice(extent.start, extent.start + length))
            part_shape.append(length)
        return tuple(place), tuple(part_shape)

    def _name(self, key):
        try:
            return key.decode()
        except UnicodeDecodeError:
            self._refuse(key, "a name that is not UTF-8")

    def _refuse(self, key, received):
        raise CheckpointError(
            f"{self.path}: {_shown(key)} is damaged: an entry of the index that fits the data "
            f"files was expected. Received: {str(received)[:200]}"
        )


def _shown(key):
    return key.decode(errors="replace")[:100]


def _type_name(entry) -> str:
    from tensorflow.core.framework import types_pb2

    names = types_pb2.DataType.DESCRIPTOR.values_by_number
    return names[entry.dtype].name if entry.dtype in names else f"data type {entry.dtype}"


def _numpy_type(type_name):
    import ml_dtypes  # noqa: F401  registers bfloat16 with numpy

    return np.dtype(_NUMPY_TYPES[type_name]).newbyteorder("<")


def _slice_key(key: bytes, part) -> bytes:
    """The key of a slice of the tensor `key`: `EncodeTensorNameSlice` of TensorFlow."""
    # Of what the encoding escapes, UTF-8 has the zero byte only.
    escaped = key.replace(b"\0", b"\0\xff")
    encoded = b"\0" + escaped + b"\0\x01" + _ordered_count(len(part.extent))
    for extent in part.extent:
        has_length = extent.HasField("length")
        encoded += _ordered_number(extent.start)
        encoded += _ordered_number(extent.length if has_length else -1)
    return encoded


def _ordered_count(value):
    """`OrderedCode::WriteNumIncreasing`: the number of bytes, and the bytes."""
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(content)]) + content


def _ordered_number(value):
    """`OrderedCode::WriteSignedNumIncreasing`: as many leading ones as bytes, then the number."""
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    ones = ((1 << size) - 1) << 7 * size  # a header of `size` ones before a sign bit of its own
    return ((value ^ ones) & ((1 << 8 * size) - 1)).to_bytes(size, "big")
