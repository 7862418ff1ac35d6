"""Replaces files and directories atomically, even if the process is killed.

New files are written to a hidden folder of their directory, and renamed to their places when all
are on the disk. One rename is atomic, several can be undone:

    .bert_tf-<random>/       the new files; the process that writes them holds a lock in it
    .bert_tf-replacing/      the same folder while its files are moved; because there is only one
                             such name, only one writer moves files at a time
        journal.json         the files that are replaced and added; written before files are moved
        new/  old/           the files that are not moved yet, and those that were replaced

Renaming `.bert_tf-replacing` ends the replacement. An error before that undoes the moves; after a
kill the next reader or writer does (`recover`), or raises a CheckpointError if that is impossible.
A folder whose lock is free was left by a killed process, and the next writer removes it.
"""

import contextlib
import ctypes
import errno
import fcntl
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import list_of, object_of, text
from bert_tf.errors import CheckpointError, UserError

_STAGING = ".bert_tf-"
_REPLACING = ".bert_tf-replacing"
_LOCK, _JOURNAL, _NEW, _OLD = "lock", "journal.json", "new", "old"
_RECOVERY_SECONDS = 60.0  # a live writer only renames files while others wait for it
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS)  # some file systems, of directories
CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # a disk that is full or broken
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # <fcntl.h>, <linux/fs.h>
_NAMES = list_of(text(most=4096), most=100_000)  # 4096: PATH_MAX in <linux/limits.h>
_JOURNAL_SCHEMA = object_of({"replaced": _NAMES, "added": _NAMES, "folders": _NAMES})


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary path, which replaces `path` when the block ends without an error.

    If the block raises, an old `path` is not changed. The path can be a file or a directory, which
    is replaced with all its files.

    Raises:
        UserError: If `path` is empty, which would be the working directory, or has a NUL character.
        OSError: If a file cannot be written; after "No space left on device" its `filename` is
            `path`, where Python has none.
    """
    directory, name = os.path.split(_absolute(path))
    with _named_if_full(path), _staging(directory) as staging:
        yield os.path.join(staging, _NEW, name)
        _replace(directory, staging, [name])


@contextlib.contextmanager
def staged_files(directory: str | os.PathLike) -> Iterator[str]:
    """Yields a temporary directory whose files replace those of `directory` when the block ends.

    They are replaced together, atomically; other files are kept. The directory is created if it
    does not exist. The errors are those of `atomic_path`.
    """
    directory = _absolute(directory)
    with _named_if_full(directory), _staging(directory) as staging:
        new = os.path.join(staging, _NEW)
        yield new
        files = (os.path.join(folder, name) for folder, _, names in os.walk(new) for name in names)
        _replace(directory, staging, sorted(os.path.relpath(file, new) for file in files))


@contextlib.contextmanager
def scratch_directory(directory: str | os.PathLike) -> Iterator[str]:
    """Yields a hidden folder in `directory`, which is removed at the end or by the next writer."""
    with _staging(os.path.abspath(directory)) as staging:
        yield os.path.join(staging, _NEW)


def remove_directory(path: str | os.PathLike) -> None:
    """Removes a directory atomically: if the process is killed, it is complete or gone."""
    directory = os.path.dirname(os.path.abspath(path))
    with _staging(directory) as staging:
        os.rename(path, os.path.join(staging, _OLD))


def recover(directory: str | os.PathLike) -> None:
    """Undoes an interrupted replacement in `directory`. Call it before reading the directory."""
    directory = os.path.abspath(directory)
    replacing = os.path.join(directory, _REPLACING)
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while os.path.lexists(replacing):
        if os.path.islink(replacing):
            raise _unfinished(directory, "a link to another place")
        try:
            lock = _lock(replacing)
        except (BlockingIOError, FileNotFoundError):  # another process is just replacing files
            _wait(deadline, directory, "another process that is still replacing them")
            continue
        except OSError as error:
            raise _unfinished(directory, error) from error
        with lock:
            try:
                _undo(directory)
            except (OSError, ValueError) as error:  # also a CheckpointError of `read_json`
                raise _unfinished(directory, error) from error


def recover_around(pattern: str) -> None:
    """Calls `recover` for the directories of a glob pattern, before the pattern is resolved."""
    for directory in glob.glob(os.path.dirname(pattern) or os.curdir):
        recover(directory)


def without_staging(paths: Iterable[str]) -> list[str]:
    """Returns the paths outside of hidden folders, which `tf.io.gfile.glob` also matches."""
    hidden = f"/{_STAGING}"
    return [path for path in paths if hidden not in f"/{path}"]


def remove_leftovers(directory: str | os.PathLike) -> None:
    """Removes the hidden folders that killed writers left in `directory`."""
    for folder in glob.glob(os.path.join(glob.escape(directory), f"{_STAGING}*")):
        if os.path.basename(folder) == _REPLACING or os.path.islink(folder):
            continue
        # A locked folder is in use; another user's folder cannot be removed.
        with contextlib.suppress(OSError), _lock(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _absolute(path):
    if not os.fspath(path) or "\0" in os.fsdecode(path):
        raise UserError(f"`path` must be a file or a directory. Received: {path=}.")
    return os.path.abspath(path)


@contextlib.contextmanager
def _named_if_full(path):
    """Adds the path to an error of writing to a full disk, which says which file only to `open`."""
    try:
        yield
    except OSError as error:
        if error.errno in CANNOT_WRITE and error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextlib.contextmanager
def _staging(directory):
    """Yields a new hidden folder in `directory`, which is locked while this process uses it."""
    os.makedirs(directory, exist_ok=True)
    recover(directory)
    remove_leftovers(directory)
    staging, lock = _locked_folder(directory)
    with lock:
        try:
            os.mkdir(os.path.join(staging, _NEW))
            yield staging
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def _locked_folder(directory):
    while True:
        staging = tempfile.mkdtemp(prefix=_STAGING, dir=directory)
        try:
            return staging, _lock(staging)
        except (BlockingIOError, FileNotFoundError):
            continue  # another writer removed it as a leftover before it was locked
        except _NoLocks:
            return staging, contextlib.nullcontext()
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise


class _NoLocks(OSError):
    """The file system has no locks, so it is unknown which folders are in use: none is removed."""


def _lock(folder):
    """Locks a folder until the returned file is closed, or the process ends.

    It raises a BlockingIOError if the folder is locked, a FileNotFoundError if it was removed.
    """
    path = os.path.join(folder, _LOCK)
    file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
            raise FileNotFoundError(f"{path} was removed")
    except OSError as error:
        file.close()
        if isinstance(error, (BlockingIOError, FileNotFoundError)):
            raise
        raise _NoLocks(error.errno, error.strerror, path) from None
    return file


def _replace(directory, staging, names):
    """Moves the files or directories `names` from `staging` to their places in `directory`."""
    new = os.path.join(staging, _NEW)
    for name in names:
        place = os.path.join(directory, name)
        is_directory = os.path.isdir(os.path.join(new, name))
        if os.path.isdir(place) and not is_directory:
            raise IsADirectoryError(f"{place} must be a file. Received: a directory.")
        if is_directory and os.path.lexists(place) and not os.path.isdir(place):
            raise NotADirectoryError(f"{place} must be a directory. Received: a file.")
    _sync_below(new)
    if len(names) == 1:
        moved, place = os.path.join(new, names[0]), os.path.join(directory, names[0])
        if not os.path.isdir(place):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            os.replace(moved, place)
        elif not _exchange(moved, place):
            _replace_undoably(directory, staging, names)
    elif names:
        _replace_undoably(directory, staging, names)
    with contextlib.suppress(OSError):  # already replaced; only a power failure could undo it
        _sync(directory)


def _exchange(first, second) -> bool:
    """Exchanges two paths atomically if the system can, and returns whether it did."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    first, second = os.fsencode(first), os.fsencode(second)
    return bool(rename) and not rename(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE)


def _replace_undoably(directory, staging, names):
    replacing = os.path.join(directory, _REPLACING)
    new, old = os.path.join(replacing, _NEW), os.path.join(replacing, _OLD)
    mine = os.stat(staging)
    _take_turn(directory, staging)
    try:
        places = {name: os.path.join(directory, name) for name in names}
        replaced = [name for name in names if os.path.lexists(places[name])]
        added = [name for name in names if name not in replaced]
        missing = _missing_folders(directory, names)
        _write_journal(replacing, {"replaced": replaced, "added": added, "folders": missing})
        folders = {os.path.dirname(name) for name in names}
        for folder in folders:
            os.makedirs(os.path.join(directory, folder), exist_ok=True)
            os.makedirs(os.path.join(old, folder), exist_ok=True)
        for name in names:
            if name in replaced:
                os.rename(places[name], os.path.join(old, name))
            os.rename(os.path.join(new, name), places[name])
        for folder in folders:
            _sync(os.path.join(directory, folder))
        os.rename(replacing, staging)
    except BaseException:
        # If undoing fails too, the journal is kept for the next reader or writer.
        with contextlib.suppress(OSError, ValueError):
            if os.path.samestat(mine, os.stat(replacing)):  # else Ctrl-C came after the last move
                _undo(directory)
        raise


def _take_turn(directory, staging):
    """Renames `staging` to the name under which files are moved."""
    deadline = time.monotonic() + _RECOVERY_SECONDS
    while True:
        try:
            return os.rename(staging, os.path.join(directory, _REPLACING))
        except OSError:
            if not os.path.lexists(os.path.join(directory, _REPLACING)):
                raise
            recover(directory)
            _wait(deadline, directory, "other processes that keep replacing them")


def _write_journal(replacing, journal):
    path = os.path.join(replacing, _JOURNAL)
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(journal, file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(f"{path}.new", path)
    _sync(replacing)


def _undo(directory):
    """Moves all files of the journal back. After a kill, another call completes it.

    A journal that is damaged or names a path outside the directory is a ValueError.
    """
    replacing = os.path.join(directory, _REPLACING)
    journal_file = os.path.join(replacing, _JOURNAL)
    if os.path.lexists(journal_file):  # without one nothing was moved
        if os.path.islink(journal_file):
            raise ValueError(f"{journal_file} is a link to another place")
        journal = read_json(journal_file, _JOURNAL_SCHEMA)
        for name in (*journal["replaced"], *journal["added"], *journal["folders"]):
            _journal_paths(directory, name)  # all are checked before any file is moved
        for name in journal["replaced"]:
            place, new, old = _journal_paths(directory, name)
            if os.path.lexists(old):
                if os.path.lexists(place):
                    os.rename(place, new)
                    place, new, old = _journal_paths(directory, name)
                os.rename(old, place)
        for name in journal["added"]:
            place, new, _ = _journal_paths(directory, name)
            if os.path.lexists(place) and not os.path.lexists(new):
                os.rename(place, new)
        for folder in reversed(journal["folders"]):
            place, _, _ = _journal_paths(directory, folder)
            with contextlib.suppress(OSError):  # not created yet, or not empty
                os.rmdir(place)
        _sync(directory)
    done = os.path.join(directory, f"{_STAGING}{os.urandom(8).hex()}")
    os.rename(replacing, done)
    shutil.rmtree(done, ignore_errors=True)


def _journal_paths(directory, name):
    """Returns the paths of a name of the journal: its place, the new file and the old file.

    It is called before each move, because an earlier move may have put a link into the path.

    Raises:
        ValueError: If a path is outside the directory or leads through a link.
    """
    root = os.path.realpath(directory)
    hidden = os.path.join(root, _REPLACING)
    is_plain = name == os.path.normpath(name) and not os.path.isabs(name)
    is_plain = is_plain and name.split(os.sep)[0] not in (os.curdir, os.pardir)
    paths = [os.path.join(base, name) for base in (root, f"{hidden}/{_NEW}", f"{hidden}/{_OLD}")]
    folders = map(os.path.dirname, paths)
    # The last part may be a link: renaming a link moves the link itself.
    if not is_plain or any(os.path.realpath(folder) != folder for folder in folders):
        raise ValueError(
            f"a journal with {name!r:.200}, which is outside of the directory or leads through a "
            "link"
        )
    return paths


def _missing_folders(directory, names):
    """Returns the folders of `names` that must be created, outer ones first."""
    missing = set()
    for name in names:
        while name := os.path.dirname(name):
            if not os.path.lexists(os.path.join(directory, name)):
                missing.add(name)
    return sorted(missing)


def _wait(deadline, directory, received):
    if time.monotonic() > deadline:
        raise _unfinished(directory, received)
    time.sleep(0.01)


def _unfinished(directory, received):
    old = os.path.join(directory, _REPLACING, _OLD)
    return CheckpointError(
        f"{directory} must contain the files of one save. A save was interrupted while it replaced "
        f"files, and this could not be undone. Received: {str(received).removesuffix('.')}. Open "
        f"the directory where it is writable, or move the files of {old} back to their places and "
        f"remove {os.path.dirname(old)}."
    )


def _sync_below(directory):
    """Waits until all files of a directory are on the disk, because a rename could be earlier."""
    for folder, _, names in os.walk(directory):
        for path in [*(os.path.join(folder, name) for name in names), folder]:
            if not os.path.islink(path):
                _sync(path)


def _sync(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise
    finally:
        os.close(descriptor)
