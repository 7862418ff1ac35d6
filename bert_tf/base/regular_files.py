"""Opens the files that this package reads: regular files only.

A checkpoint, an index or a data set can come from a stranger, who may have put a named pipe or a
device in the place of a file. Opening a named pipe waits until something writes to it, and a device
may have no end. Every module opens its files here, or checks them here before a library opens them.
"""

import errno
import os
import stat
from typing import IO, Any

# The standard input, no input, and the pipes that a shell makes for `<(command)`.
_STREAMS = ("/dev/stdin", "/dev/null", "/dev/fd/", "/proc/self/fd/")


def open_descriptor(path: str | os.PathLike, flags: int = os.O_RDONLY) -> int:
    """Returns the descriptor of a regular file, or of a link to one.

    Raises:
        OSError: If the file cannot be opened or is not regular.
    """
    name = os.fspath(path)
    if "\0" in os.fsdecode(name):
        raise OSError(errno.EINVAL, "The path has a NUL character", name)
    # Without O_NONBLOCK, opening a named pipe waits for a writer.
    descriptor = os.open(name, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    raise OSError(errno.EINVAL, "not a regular file", name)


def open_regular(path: str | os.PathLike, mode: str = "rb", **options: Any) -> IO:
    """Opens a regular file for reading.

    Args:
        path: The file, or a link to it.
        mode: "rb", or "r" for text.
        **options: Other arguments of Python's `open`.

    Raises:
        OSError: If the file cannot be opened or is not regular.

    Example:
        >>> with open_regular("/dev/zero") as file:
        ...     file.read()
        Traceback (most recent call last):
        OSError: [Errno 22] not a regular file: '/dev/zero'
    """
    if "\0" in os.fsdecode(path):  # `open` would raise a ValueError
        open_descriptor(path)
    return open(path, mode, opener=open_descriptor, **options)


def open_input(path: str | os.PathLike, mode: str = "rb", **options: Any) -> IO:
    """Opens an input that a user names: a regular file, the standard input or a pipe of the shell.

    The arguments are those of `open_regular`.

    Raises:
        OSError: See `open_regular`.
    """
    if os.fspath(path).startswith(_STREAMS):
        return open(path, mode, **options)
    return open_regular(path, mode, **options)


def require_regular(path: str | os.PathLike) -> None:
    """Checks a file that a library opens by its path.

    Raises:
        OSError: If the file cannot be opened or is not regular.
    """
    os.close(open_descriptor(path))


def require_regular_below(directory: str | os.PathLike) -> None:
    """Checks all files of a directory that a library opens.

    Raises:
        OSError: If one of them cannot be opened or is not regular.
    """
    seen = set()  # links can lead around in circles
    for folder, folders, names in os.walk(directory, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        for name in names:
            require_regular(os.path.join(folder, name))
