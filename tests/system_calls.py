"""Sees every system call by which a process changes files, and lets it happen or fail.

Linux hands the calls of a process and all its threads, those of libraries in C++ too, to another
process, which answers each (seccomp's user notification). What the files are when a call comes is
what a kill at that moment would leave.

Reference: seccomp_unotify(2), seccomp(2); the numbers are those of x86-64.
"""

import contextlib
import ctypes
import dataclasses
import errno
import fcntl
import os
import platform
import select
import socket
import struct
import sys

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"

_PR_SET_NO_NEW_PRIVS, _SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER = 38, 317, 1, 8
_RECEIVE, _SEND, _CONTINUE = 0xC0502100, 0xC0182101, 1
_SET_FLAGS, _SYNC_WAKE_UP = 0x40082104, 1
_NOTIFICATION, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_AT_FDCWD = -100
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT

# Number: name, argument of the path, argument of the directory it is relative to.
_BY_PATH = {
    2: ("open", 0, None),
    85: ("creat", 0, None),
    257: ("open", 1, 0),
    82: ("rename", 0, None),
    264: ("rename", 1, 0),
    316: ("exchange", 1, 0),
    87: ("unlink", 0, None),
    263: ("unlink", 1, 0),
    84: ("rmdir", 0, None),
    83: ("mkdir", 0, None),
    258: ("mkdir", 1, 0),
    76: ("truncate", 0, None),
    86: ("link", 1, None),
    265: ("link", 3, 2),
    88: ("symlink", 1, None),
    266: ("symlink", 2, 1),
}
# Number: name, argument of the file's descriptor.
_BY_DESCRIPTOR = {
    1: ("write", 0),
    18: ("write", 0),
    20: ("write", 0),
    296: ("write", 0),
    328: ("write", 0),
    40: ("write", 0),
    326: ("write", 2),
    77: ("truncate", 0),
    285: ("allocate", 0),
    74: ("fsync", 0),
    75: ("fsync", 0),
}
_OPEN_FLAGS = {2: 1, 257: 2}  # their argument; files that are only read are nobody's business
_NO_SPACE = ("open", "creat", "mkdir", "write", "truncate", "allocate", "link", "symlink")


@dataclasses.dataclass(frozen=True)
class Call:
    """A system call that changes a file."""

    name: str
    path: str

    @property
    def error(self) -> int:
        """How it fails: the disk is full, or broken."""
        return errno.ENOSPC if self.name in _NO_SPACE else errno.EIO


def hand_over(connection: socket.socket) -> None:
    """From now on this process's calls are answered by who gets the descriptor that is sent."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = _program()
    filters = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(filters))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(_SECCOMP, _SET_MODE_FILTER, _NEW_LISTENER, header)
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    socket.send_fds(connection, [b"+"], [listener])
    os.close(listener)


def _program() -> bytes:
    """The filter in classic BPF: the calls above are handed over, the others go on."""
    load, equal, greater, has_bits, end = 0x20, 0x15, 0x25, 0x45, 0x06
    allow, ask = 0x7FFF0000, 0x7FC00000

    def step(code, true, false, value):
        return struct.pack("HBBI", code, true, false, value)

    def argument(index):
        return 16 + 8 * index

    steps = []
    for number in (*_BY_PATH, *_BY_DESCRIPTOR):
        steps.append(step(load, 0, 0, 0))
        if number in _OPEN_FLAGS:
            steps += [
                step(equal, 0, 4, number),
                step(load, 0, 0, argument(_OPEN_FLAGS[number])),
                step(has_bits, 0, 1, _WRITES),
                step(end, 0, 0, ask),
                step(end, 0, 0, allow),
            ]
        elif number in _BY_DESCRIPTOR:
            steps += [
                step(equal, 0, 4, number),
                step(load, 0, 0, argument(_BY_DESCRIPTOR[number][1])),
                step(greater, 0, 1, 2),  # not what goes to the terminal
                step(end, 0, 0, ask),
                step(end, 0, 0, allow),
            ]
        else:
            steps += [step(equal, 0, 1, number), step(end, 0, 0, ask)]
    return b"".join([*steps, step(end, 0, 0, allow)])


class Watcher:
    """Answers the calls of the process that sent `listener`; only those below `root` count."""

    def __init__(self, listener: int, root: str | os.PathLike):
        self._listener = listener
        with contextlib.suppress(OSError):  # before Linux 6.6 it is slower
            fcntl.ioctl(listener, _SET_FLAGS, struct.pack("Q", _SYNC_WAKE_UP))
        self._root = os.fspath(root) + os.sep

    def close(self) -> None:
        os.close(self._listener)

    def until_readable(self, connection: socket.socket, decide) -> None:
        """Answers until there is something to read.

        Args:
            connection: What is waited for.
            decide: Gets each `Call`; returns the number of the error it fails with, or 0.
        """
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(connection, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if ready.get(self._listener, 0) & select.POLLIN:
                self._answer(decide)
            elif connection.fileno() in ready:
                return

    def _answer(self, decide):
        buffer = bytearray(_NOTIFICATION.size)
        try:
            fcntl.ioctl(self._listener, _RECEIVE, buffer)
            identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
            call = _call(pid, number, arguments)
            error = decide(call) if call and (call.path + os.sep).startswith(self._root) else 0
            response = _RESPONSE.pack(identity, 0, -error, 0 if error else _CONTINUE)
            fcntl.ioctl(self._listener, _SEND, response)
        except FileNotFoundError:
            pass  # the thread that made the call is gone


def _call(pid, number, arguments) -> Call | None:
    """The call, or None where it is about no file with a name."""
    try:
        if number in _BY_DESCRIPTOR:
            name, index = _BY_DESCRIPTOR[number]
            return Call(name, os.readlink(f"/proc/{pid}/fd/{_signed(arguments[index])}"))
        name, index, base = _BY_PATH[number]
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(arguments[index])
            path = os.fsdecode(memory.read(4096).split(b"\0")[0])
        directory = _AT_FDCWD if base is None else _signed(arguments[base])
        link = "cwd" if directory == _AT_FDCWD else f"fd/{directory}"
        return Call(name, os.path.normpath(os.path.join(os.readlink(f"/proc/{pid}/{link}"), path)))
    except OSError:
        return None


def _signed(value):
    return struct.unpack("i", struct.pack("I", value & 0xFFFFFFFF))[0]
