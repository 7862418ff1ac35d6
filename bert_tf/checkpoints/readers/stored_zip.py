"""Reads zip archives with uncompressed members, such as the files of PyTorch and Keras.

Members are views of the memory-mapped file. Nothing is unpacked, so reading an archive never needs
more memory than the file's size.
"""

import io
import mmap
import struct
import zipfile
import zlib

from bert_tf.base.file_errors import complete_file, file_error
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import CheckpointError

_LOCAL_HEADER = struct.Struct("<4s22xHH")  # signature, ..., length of name, length of extra field
_ENCRYPTED = 0x1


class StoredZip:
    """The members of a zip archive without compression and encryption, as views of the file.

    Raises:
        CheckpointError: If the file is not a complete zip archive, or a member is compressed or
            encrypted.
    """

    def __init__(self, path: str):
        self.path = path
        with complete_file(path, "a complete zip archive"):
            self._map = map_file(path)
            with open_regular(path) as file, zipfile.ZipFile(file) as archive:
                members = archive.infolist()
        self._view = memoryview(self._map)
        self._members = {}
        self._checked = set()
        for member in members:
            if member.filename.endswith("/"):
                continue
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & _ENCRYPTED:
                received = f"{member.filename!r}, which is compressed or encrypted"
                raise CheckpointError(
                    f"{path} must be a zip archive without compression and encryption, as PyTorch "
                    f"and Keras write it. Received: {received}. If you trust the file, unpack it "
                    "yourself."
                )
            if member.filename in self._members:
                raise file_error(path, "hold every member once", f"{member.filename!r} twice")
            self._members[member.filename] = member

    def release(self) -> None:
        """Releases the memory of the pages that were read; views stay valid."""
        release_pages(self._map)

    @property
    def names(self) -> list[str]:
        """The names of the members."""
        return list(self._members)

    def view(self, name: str) -> memoryview:
        """Returns the bytes of a member, after verifying its checksum.

        Raises `CheckpointError` if the member is missing, truncated or damaged.
        """
        if name not in self._members:
            raise file_error(self.path, f"hold {name!r}", "no such member")
        outside = file_error(self.path, f"hold all bytes of {name!r}", "a member outside the file")
        member = self._members[name]
        start = member.header_offset
        header = self._view[start : start + _LOCAL_HEADER.size]
        if start < 0 or len(header) < _LOCAL_HEADER.size:
            raise outside
        signature, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start += _LOCAL_HEADER.size + name_length + extra_length
        content = self._view[start : start + member.file_size]
        if signature != b"PK\x03\x04" or len(content) != member.file_size:
            raise outside
        if name not in self._checked:
            if zlib.crc32(content) != member.CRC:
                received = "another checksum. The file is damaged; download it again."
                expected = "have the checksum that the archive gives"
                raise file_error(f"{name!r} in {self.path}", expected, received)
            self._checked.add(name)
        return content


def map_file(path: str) -> mmap.mmap:
    """Maps a file into memory to read it.

    Raises `OSError` if it cannot be opened or is not a regular file, and `ValueError` if it is
    empty.
    """
    with open_regular(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release_pages(mapped: mmap.mmap) -> None:
    """Removes a mapped file's pages from this process's memory; accessing them reads them again."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


class ViewFile(io.RawIOBase):
    """A seekable file that reads a memory view without copying it."""

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

    def readinto(self, buffer):
        chunk = self._view[self._position : self._position + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._position += len(chunk)
        return len(chunk)
