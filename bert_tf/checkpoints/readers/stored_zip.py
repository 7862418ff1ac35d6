"""Zip archives whose members are stored, not compressed: PyTorch's and Keras's files are such.

Nothing is unpacked: members are looked at where they stand in the memory-mapped file, so an archive
cannot grow when it is read.
"""

import io
import mmap
import struct
import zipfile
import zlib

from bert_tf.errors import CheckpointError

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., length of name, length of extra field
_ENCRYPTED = 0x1


class StoredZip:
    """The members of a zip archive, as views of the mapped file.

    Args:
        path: The archive.

    Raises:
        CheckpointError: If it is no whole zip archive, or a member is compressed or encrypted.
    """

    def __init__(self, path: str):
        self.path = path
        try:
            with open(path, "rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
        except (
            OSError,
            ValueError,
            EOFError,
            RuntimeError,
            NotImplementedError,
            KeyError,
            zipfile.BadZipFile,
            struct.error,
            OverflowError,
        ) as error:
            raise CheckpointError(
                f"{path} is not a whole zip archive ({error}). Fetch it again."
            ) from None
        self._view = memoryview(self._map)
        self._members = {}
        self._checked = set()
        for member in members:
            if member.filename.endswith("/"):
                continue
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
                raise CheckpointError(
                    f"{path}: expected members that are stored as they are. Received: "
                    f"{member.filename!r}, compressed or encrypted. It was not written by PyTorch "
                    "or Keras; unpack it yourself if you trust it."
                )
            if member.filename in self._members:
                raise CheckpointError(f"{path}: expected each member once: {member.filename!r}")
            self._members[member.filename] = member

    def release(self) -> None:
        """Lets go of the memory of what was read; views read it from the file again."""
        release_pages(self._map)

    @property
    def names(self) -> list[str]:
        return list(self._members)

    def view(self, name: str) -> memoryview:
        """The bytes of a member, compared with its checksum.

        Raises:
            CheckpointError: If the member is missing, cut or damaged.
        """
        if name not in self._members:
            raise CheckpointError(f"{self.path}: expected a member {name!r}, there is none")
        member = self._members[name]
        start = member.header_offset
        header = self._view[start : start + _LOCAL_HEADER.size]
        if start < 0 or len(header) < _LOCAL_HEADER.size:
            raise CheckpointError(f"{self.path}: member {name!r} lies outside the file")
        signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start += _LOCAL_HEADER.size + name_length + extra_length
        content = self._view[start : start + member.file_size]
        if signature != b"PK\x03\x04" or len(content) != member.file_size:
            raise CheckpointError(f"{self.path}: member {name!r} lies outside the file")
        if name not in self._checked:
            if zlib.crc32(content) != member.CRC:
                raise CheckpointError(
                    f"{self.path}: member {name!r} is damaged (its checksum differs). Fetch the "
                    "file again."
                )
            self._checked.add(name)
        return content


def release_pages(mapped: mmap.mmap) -> None:
    """Takes a mapped file's pages out of this process's memory; they come back when touched."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class ViewFile(io.RawIOBase):
    """A memory view as a seekable file, without a copy."""

    def __init__(self, view: memoryview):
        super().__init__()
        self._view = view
        self._position = 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=io.SEEK_SET):
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: len(self._view)}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self):
        return self._position

    def readinto(self, buffer):
        chunk = self._view[self._position : self._position + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)
