"""Files of a pipeline: local ones, and those of Beam's file systems (gs://, s3://, hdfs://)."""

import glob
import os
import shutil
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from bert_tf.base.regular_files import open_regular
from bert_tf.errors import UserError

_COPIED_BYTES = 1 << 20  # at a time


class InputFile(NamedTuple):
    """A file with its size and, if it is local, the time of its last change, in nanoseconds."""

    path: str
    size: int
    changed: int | None = None


def is_remote(path: str) -> bool:
    """Returns whether a path is of another file system than the machine's own.

    Example:
        >>> from bert_tf.beam.file_access import is_remote
        >>> is_remote("gs://bucket/a.txt"), is_remote("/data/a.txt")
        (True, False)
    """
    return "://" in path


def match_files(patterns: Sequence[str]) -> list[InputFile]:
    """Returns the files of paths, glob patterns and directories, which are searched recursively.

    Files of directories are sorted by path; hidden ones are left out. Raises `UserError` if a
    pattern matches no file.
    """
    found = []
    for pattern in patterns:
        files = _remote(pattern) if is_remote(pattern) else list(_local(pattern))
        if not files:
            raise UserError(f"--input_file must match at least one file. Received: {pattern!r}")
        found += files
    return found


def _local(pattern: str) -> Iterator[InputFile]:
    is_path = os.path.lexists(pattern) or not glob.has_magic(pattern)  # names may have brackets
    for path in [pattern] if is_path else sorted(glob.glob(pattern)):
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                yield from (
                    _local_file(os.path.join(folder, name))
                    for name in sorted(names)
                    if not name.startswith(".")
                )
        elif os.path.lexists(path):
            yield _local_file(path)


def _local_file(path: str) -> InputFile:
    try:
        status = os.stat(path)
    except OSError:  # the error is reported when it is opened
        return InputFile(path, 0)
    return InputFile(path, status.st_size, status.st_mtime_ns)


def _remote(pattern: str) -> list[InputFile]:
    try:
        (result,) = FileSystems.match([pattern])
        if not result.metadata_list and not glob.has_magic(pattern):
            (result,) = FileSystems.match([f"{pattern.rstrip('/')}/**"])
    except (BeamIOError, ValueError) as error:  # ValueError: no such file system is installed
        raise UserError(f"--input_file must be readable. Received: {pattern!r}, {error}") from error
    files = (InputFile(found.path, found.size_in_bytes) for found in result.metadata_list)
    return sorted(files)


def open_file(path: str, mode: str = "rb") -> BinaryIO:
    """Opens a file to read or, with the mode "wb", to write; a `.gz` is not decompressed."""
    if not is_remote(path):
        # Beam's function would create missing directories.
        return open_regular(path) if mode == "rb" else open(path, mode)
    function = {"rb": FileSystems.open, "wb": FileSystems.create}[mode]
    return function(path, compression_type=CompressionTypes.UNCOMPRESSED)


def rename(source: str, target: str) -> None:
    """Renames a file; an existing target is replaced."""
    if is_remote(target):
        FileSystems.rename([source], [target])
    else:
        os.replace(source, target)


def copy(source: str, target: str) -> None:
    """Copies a file, also from one file system to another; on one local disk it is only linked."""
    if is_remote(source) and FileSystems.get_scheme(source) == FileSystems.get_scheme(target):
        FileSystems.copy([source], [target])
        return
    if not (is_remote(source) or is_remote(target)):
        try:
            os.link(source, target)
            return
        except OSError:  # another disk, or one without links
            pass
    with open_file(source) as old, open_file(target, "wb") as new:
        shutil.copyfileobj(old, new, _COPIED_BYTES)


def remove(paths: Sequence[str]) -> None:
    """Removes files; those that are already gone are no error."""
    existing = [path for path in paths if FileSystems.exists(path)]
    if existing:
        FileSystems.delete(existing)


def remove_tree(path: str) -> None:
    """Removes a directory with all that is in it."""
    if is_remote(path):  # there are only files, whose names begin with that of the directory
        (found,) = FileSystems.match([f"{path}/**"])
        remove([file.path for file in found.metadata_list])
    else:
        shutil.rmtree(path)


def write_segments(path: str, segments: Sequence[Sequence[bytes]]) -> None:
    """Writes a file of numbered segments, each given as the parts to write one after the other.

    The file begins with a table of the places where the segments begin, and the end: int64
    `[segments + 1]`. A segment is read without the others, which also remote files allow.
    """
    sizes = [sum(map(len, parts)) for parts in segments]
    table = np.cumsum([8 * (len(sizes) + 1), *sizes], dtype="<i8")
    with open_file(path, "wb") as file:
        file.write(table.tobytes())
        for parts in segments:
            for part in parts:
                file.write(part)


def read_segment(path: str, number: int) -> bytes:
    """Returns a segment of a file of `write_segments`."""
    with open_file(path) as file:
        file.seek(8 * number)
        start, end = np.frombuffer(file.read(16), "<i8").tolist()
        file.seek(start)
        return file.read(end - start)
