"""Reads sorted string tables, the format of a TensorFlow checkpoint's `.index`, defensively.

    file         = block*  metaindex block  index block  footer
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

Reference: LevelDB doc/table_format.md; tensorflow/core/lib/io/{format,block,table_builder}.cc.
"""

from collections.abc import Iterator

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.base.file_errors import complete_file
from bert_tf.base.regular_files import open_regular

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
