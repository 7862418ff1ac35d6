"""Reads TensorFlow's checkpoint files, `<prefix>.index` and `<prefix>.data-0000k-of-0000n`.

The index is a sorted string table with one `BundleEntryProto` per tensor: its type, shape, data
file, byte range and checksum. TensorFlow's own reader trusts every index with correct checksums, so
a malicious one can terminate the process (`Check failed` for a negative dimension). This reader
checks every entry before it offers a tensor, and its tensors are views of the mapped data files.

    table        = block*  metaindex block  index block  footer
    block        = entry*  restart offset (uint32)*  number of restart offsets (uint32)
                   then, outside the block's size: type (1 byte)  masked CRC-32C of both (uint32)
    entry        = shared  unshared  value size (varints)  unshared bytes of the key  value
    footer       = handle of the metaindex  handle of the index  zeros to 40 bytes  magic (8 bytes)
    block handle = offset  size (varints)

A key begins with the first `shared` bytes of the previous key. The index block has one entry per
data block, whose value is the block's handle. The restart offsets are for binary search only, and
the metaindex of a checkpoint is empty; neither is used here.

The work and the memory are limited: blocks must follow each other in the file and keys must be in
ascending order, so the work is bounded by the file's size; and the bytes of the keys are counted,
because shared prefixes allow a small file to hold very long keys.

A partitioned variable has an entry with a list of its slices and without data; each slice has a
separate entry with an encoded key.

Reference: LevelDB doc/table_format.md; tensorflow/core/lib/io/{format,block,table_builder}.cc;
tensorflow/core/util/tensor_bundle/tensor_bundle.{h,cc}, tensorflow/core/protobuf/
tensor_bundle.proto; for the keys of slices tensorflow/core/util/saved_tensor_slice_util.cc and
lib/strings/ordered_code.cc.
"""

import glob
import math
import os
import re
from collections.abc import Iterator

import ml_dtypes  # noqa: F401  registers bfloat16 with numpy
import numpy as np
from google.protobuf.message import DecodeError
from tensorflow.core.framework import types_pb2
from tensorflow.core.protobuf import tensor_bundle_pb2

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.base.file_errors import complete_file, file_error, tensor_error
from bert_tf.base.regular_files import open_regular
from bert_tf.checkpoints.readers.stored_zip import map_file

# For comparison, a BERT-large with its optimizer has 1,200 entries in 0.3 MB.
MAX_TABLE_BYTES = 16 * 2**20
_MAX_ENTRIES = 100_000
_MAX_VALUE_BYTES = 64 * 2**10

_FOOTER_SIZE = 48
_MAGIC = bytes.fromhex("57fb808b247547db")
_TRAILER_SIZE = 5  # a block's type and checksum
_UNCOMPRESSED = 0
_MAX_VARINT_BYTES = 10


def read_sstable(path: str) -> dict[bytes, bytes]:
    """Returns the values of a table by key, in the order of the keys.

    Raises:
        CheckpointError: If the table is damaged, compressed, or larger than a checkpoint's index.
    """
    kind = "the complete index of a TensorFlow checkpoint"
    with complete_file(path, kind, (OSError, _Damage)), open_regular(path) as file:
        return _Table(file.read(MAX_TABLE_BYTES + 1)).entries


class _Damage(Exception):
    """A table is not valid; the message completes "Received: "."""


class _Table:
    """Reads the blocks of a table and counts their entries and bytes."""

    def __init__(self, content: bytes):
        if len(content) > MAX_TABLE_BYTES:
            raise _Damage(f"more than {MAX_TABLE_BYTES} bytes")
        if len(content) < _FOOTER_SIZE or content[-len(_MAGIC) :] != _MAGIC:
            raise _Damage("a file that does not end with the format's signature")
        self.entries = {}
        self._content = content
        self._blocks_end = 0
        self._num_entries = 0
        self._key_bytes = 0
        footer = _Cursor(content[-_FOOTER_SIZE:])
        footer.handle()  # the metaindex
        last_key = None
        for _, handle in self._entries_of(self._block(*footer.handle())):
            offset, size = _Cursor(handle).handle()
            if offset < self._blocks_end:
                raise _Damage("blocks that overlap or are out of order")
            self._blocks_end = offset + size
            for key, value in self._entries_of(self._block(offset, size)):
                if last_key is not None and key <= last_key:
                    raise _Damage(f"keys that are not in ascending order at {key!r:.100}")
                self.entries[key] = value
                last_key = key

    def _block(self, offset, size):
        """Returns the content of a block, after verifying its checksum."""
        end = offset + size + _TRAILER_SIZE
        if end > len(self._content):
            raise _Damage("a block that ends after the end of the file")
        block, stored = self._content[offset : end - 4], self._content[end - 4 : end]
        if masked(crc32c(block)) != int.from_bytes(stored, "little"):
            raise _Damage("a damaged block, whose checksum differs")
        if block[-1] != _UNCOMPRESSED:
            # TensorFlow writes none (`TableBuilderOptions` in tensor_bundle.cc).
            raise _Damage("a compressed block, which TensorFlow does not write")
        return block[:-1]

    def _entries_of(self, block) -> Iterator[tuple[bytes, bytes]]:
        num_restarts = int.from_bytes(block[-4:], "little")
        size = len(block) - 4 * (num_restarts + 1)
        if size < 0:
            raise _Damage("a block that is too short")
        cursor = _Cursor(block[:size])
        key = b""
        while cursor.position < size:
            shared, unshared, value_size = cursor.varint(), cursor.varint(), cursor.varint()
            if shared > len(key):
                raise _Damage("a key that shares more bytes with the previous key than that has")
            key = key[:shared] + cursor.take(unshared)
            self._num_entries += 1
            self._key_bytes += len(key)
            if self._num_entries > _MAX_ENTRIES or self._key_bytes > MAX_TABLE_BYTES:
                raise _Damage("more entries than the index of a checkpoint has")
            if value_size > _MAX_VALUE_BYTES:
                raise _Damage(f"a value of {value_size} bytes for the key {key!r:.100}")
            yield key, cursor.take(value_size)


class _Cursor:
    """Reads numbers and bytes from the front of a buffer."""

    def __init__(self, content: bytes):
        self._content = content
        self.position = 0

    def varint(self) -> int:
        value = 0
        content = self._content[self.position : self.position + _MAX_VARINT_BYTES]
        for index, byte in enumerate(content):
            value |= (byte & 0x7F) << 7 * index
            if byte < 0x80:
                self.position += index + 1
                return value
        raise _Damage("a number that does not end")

    def handle(self) -> tuple[int, int]:
        """Returns a block's offset and size."""
        return self.varint(), self.varint()

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self._content):
            raise _Damage("an entry that ends after the end of its block")
        return self._content[start : self.position]


_HEADER_KEY = b""
_VERSION = 1  # tensor_bundle.h, kTensorBundleVersion
_MAX_DIMENSIONS = 32  # of a NumPy array, before version 2
_CHECKSUM_SIZE = 4
_MAX_LENGTH_SIZE = 5  # of a varint of 32 bits
# Keys are the names in tensorflow/core/framework/types.proto. A checkpoint may hold other types
# (dataset variants, resources), but weights never have them.
_INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
_NUMPY_TYPES = {
    "DT_FLOAT": "float32",
    "DT_DOUBLE": "float64",
    "DT_HALF": "float16",
    **{f"DT_{name.upper()}": name for name in ("bfloat16", "bool", *_INTEGERS)},
}
_STRING = "DT_STRING"


class TensorBundle:
    """The tensors of one checkpoint, whose path without `.index` is `prefix`.

    Raises:
        CheckpointError: If a file is missing, or the index is damaged or does not match the data.
    """

    def __init__(self, prefix: str):
        self.path = prefix
        self.shapes = {}
        self._data_sizes = {}
        table = read_sstable(f"{prefix}.index")
        parse = tensor_bundle_pb2.BundleEntryProto.FromString
        try:
            header = tensor_bundle_pb2.BundleHeaderProto.FromString(table.pop(_HEADER_KEY))
            self._entries = entries = {key: parse(value) for key, value in table.items()}
        except (KeyError, DecodeError) as error:
            received = "a table without a header" if isinstance(error, KeyError) else error
            raise file_error(f"{prefix}.index", "be the index of a checkpoint", received) from None
        little = tensor_bundle_pb2.BundleHeaderProto.LITTLE
        if header.endianness != little or header.version.min_consumer > _VERSION:
            expected = f"have version {_VERSION} of the format and little-endian order"
            raise file_error(f"{prefix}.index", expected, header)
        self._num_shards = header.num_shards
        self._check_extents()
        slices = {_slice_key(key, part) for key, entry in entries.items() for part in entry.slices}
        for key, entry in entries.items():
            self._check_size(key, entry)
            if key not in slices:
                self.shapes[self._name(key)] = self._shape(key, entry)

    def read(self, name: str) -> np.ndarray:
        """Returns the values of one numeric tensor; a view of the file unless it is partitioned.

        Raises `CheckpointError` if it is damaged or not numeric.
        """
        return self._read(name.encode())

    def read_string(self, name: str, max_bytes: int) -> bytes:
        """Returns the value of a tensor that is one string of at most `max_bytes`.

        Raises `CheckpointError` if it is damaged, longer than `max_bytes` or not one string.
        """
        key = name.encode()
        entry = self._entries.get(key)
        if entry is None or _type_name(entry) != _STRING or self.shapes[name] or entry.slices:
            kind = "no such tensor" if entry is None else _type_name(entry)
            raise self._error(key, "be one string", f"{kind}, shape={self.shapes.get(name)}")
        if entry.size > max_bytes:
            raise self._error(key, f"have at most {max_bytes} bytes", f"{entry.size} bytes")
        # The content is the length as a varint, its checksum as uint32, and the string. The entry's
        # `crc32c` covers the length as uint32, its checksum and the string.
        content = bytes(self._bytes(entry))
        ends = (i for i, byte in enumerate(content[:_MAX_LENGTH_SIZE]) if byte < 0x80)
        prefix = next(ends, 0) + 1
        text = content[prefix + _CHECKSUM_SIZE :]
        checksum = content[prefix : prefix + _CHECKSUM_SIZE]
        self._require_checksum(key, entry, len(text).to_bytes(4, "little") + checksum + text)
        return text

    def _read(self, key):
        entry = self._entries[key]
        type_name = _type_name(entry)
        if type_name not in _NUMPY_TYPES:
            raise self._error(key, "hold numbers", type_name)
        shape = self._shape(key, entry)
        if not entry.slices:
            content = self._bytes(entry)
            self._require_checksum(key, entry, content)
            return np.frombuffer(content, _numpy_type(type_name)).reshape(shape)
        values = np.zeros(shape, _numpy_type(type_name))
        is_filled = np.zeros(shape, bool)
        # `_check_size` has checked that the slices have as many values as the tensor.
        for part in entry.slices:
            place, _ = self._place(key, shape, part)
            values[place] = self._read(_slice_key(key, part))
            is_filled[place] = True
        if not is_filled.all():
            raise self._error(key, "be covered by its slices", "slices that overlap")
        return values

    def _bytes(self, entry):
        """Returns the bytes of a tensor: a view of its file, which stays mapped with the view."""
        if not entry.size:
            return b""
        content = map_file(self._data_file(entry.shard_id))
        return memoryview(content)[entry.offset : entry.offset + entry.size]

    def _require_checksum(self, key, entry, content):
        if masked(crc32c(content)) != entry.crc32c:
            received = "another checksum. The file is damaged; download it again."
            raise self._error(key, "have the checksum in the index", received)

    def _check_extents(self):
        """Checks that every tensor is inside its file and all together do not exceed the files."""
        announced = 0
        for key, entry in self._entries.items():
            if entry.slices:
                continue
            if not 0 <= entry.shard_id < self._num_shards:
                self._refuse(key, f"data file {entry.shard_id} of {self._num_shards}")
            size = self._data_size(entry.shard_id)
            if min(entry.offset, entry.size) < 0 or entry.offset + entry.size > size:
                self._refuse(key, f"{entry.size} bytes at {entry.offset} in a file of {size} bytes")
            announced += entry.size
        available = sum(self._data_sizes.values())
        if announced > available:
            received = f"the index announces {announced} bytes in files of {available}"
            tensors = f"The tensors of {self.path}"
            raise file_error(tensors, "not be larger than its data files", received)

    def _data_size(self, shard):
        if shard not in self._data_sizes:
            path = self._data_file(shard)
            if not os.path.isfile(path):
                expected = f"be a data file of the checkpoint {self.path}"
                raise file_error(path, expected, "no such file")
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
        """Checks that the shape has as many bytes as the entry."""
        type_name, shape = _type_name(entry), self._shape(key, entry)
        count = math.prod(shape)
        if entry.slices:
            sizes = {}
            for part in entry.slices:
                part_key = _slice_key(key, part)
                _, part_shape = self._place(key, shape, part)
                found = self._entries.get(part_key)
                if found is None or found.slices or found.dtype != entry.dtype:
                    self._refuse(key, f"no slice {part}")
                if self._shape(key, found) != part_shape:
                    self._refuse(key, f"no slice {part}")
                sizes[part_key] = math.prod(part_shape)
            if sum(sizes.values()) != count or len(sizes) != len(entry.slices):
                received = f"{count} values in {len(sizes)} slices of {sum(sizes.values())}"
                self._refuse(key, received)
        elif type_name in _NUMPY_TYPES:
            if count * _numpy_type(type_name).itemsize != entry.size:
                self._refuse(key, f"{entry.size} bytes of {count} numbers of {type_name}")
        elif count > entry.size:
            self._refuse(key, f"{entry.size} bytes of {count} values of {type_name}")

    def _place(self, key, shape, part):
        """Returns the index expression of a slice in its tensor, and its shape."""
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
        received = f"{str(received)[:200]}. The index is damaged."
        raise self._error(key, "match the data files", received)

    def _error(self, key, expected, received):
        return tensor_error(self, key.decode(errors="replace")[:100], expected, received)


def _type_name(entry) -> str:
    names = types_pb2.DataType.DESCRIPTOR.values_by_number
    return names[entry.dtype].name if entry.dtype in names else f"data type {entry.dtype}"


def _numpy_type(type_name):
    return np.dtype(_NUMPY_TYPES[type_name]).newbyteorder("<")


def _slice_key(key: bytes, part) -> bytes:
    """Returns the key of a slice of the tensor `key`: `EncodeTensorNameSlice` of TensorFlow."""
    # The zero byte is the only byte in UTF-8 text that the encoding escapes.
    escaped = key.replace(b"\0", b"\0\xff")
    encoded = b"\0" + escaped + b"\0\x01" + _ordered_count(len(part.extent))
    for extent in part.extent:
        encoded += _ordered_number(extent.start)
        encoded += _ordered_number(extent.length if extent.HasField("length") else -1)
    return encoded


def _ordered_count(value):
    """Encodes as `OrderedCode::WriteNumIncreasing`: the number of bytes, then the bytes."""
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(content)]) + content


def _ordered_number(value):
    """Encodes as `OrderedCode::WriteSignedNumIncreasing`: a one per byte, then the number."""
    magnitude = ~value if value < 0 else value
    size = magnitude.bit_length() // 7 + 1
    ones = ((1 << size) - 1) << 7 * size  # a header of `size` ones; the next bit is the sign
    return ((value ^ ones) & ((1 << 8 * size) - 1)).to_bytes(size, "big")


# Variables of the original program's optimizer and training loop.
_TRAINING_STATE = ("adam_m", "adam_v", "global_step")
# Only the checkpoints of `tf.train.Checkpoint` have this key.
OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Tf1Source(TensorBundle):
    """Reads one TF1 checkpoint without optimizer slots and the step. A `TensorSource`."""

    format = "tf1"

    def __init__(self, prefix: str):
        super().__init__(prefix)
        for name in [name for name in self.shapes if name.endswith(_TRAINING_STATE)]:
            del self.shapes[name]


SAVED_VARIABLES = os.path.join("variables", "variables.index")  # of a SavedModel


def checkpoint_prefix(path: str) -> str | None:
    """Returns the prefix of the checkpoint at a path, or None if there is none.

    The path is a prefix, an `.index` file or a directory. In a directory with several checkpoints,
    the one with the highest step in its name is used. The file `checkpoint` is ignored, because it
    may name other directories. The variables of a SavedModel are a checkpoint, too.
    """
    if os.path.exists(f"{path}.index"):
        return path
    if path.endswith(".index") and os.path.exists(path):
        return path.removesuffix(".index")
    if not os.path.isdir(path):
        return None
    found = glob.glob(os.path.join(glob.escape(path), "*ckpt*.index"))
    found = found or glob.glob(os.path.join(glob.escape(path), SAVED_VARIABLES))
    return max(found, key=_step).removesuffix(".index") if found else None


def _step(path):
    number = re.search(r"-(\d+)\.index$", path)
    return (int(number.group(1)) if number else -1, path)
