"""Several files that replace others together, or not at all."""

import contextlib
import glob
import os
import shutil
import tempfile

_PREFIX = ".save."
# The new files stand in `new` while they are written, and in `moving` while they are moved to their
# places: as long as that folder is there, the directory may hold some of both saves.
_NEW, _MOVING, _OLD = "new", "moving", "old"


@contextlib.contextmanager
def staged_files(directory: str):
    """Yields a temporary directory whose files replace those of `directory` when the block ends.

    If the block raises, or a file cannot be replaced, `directory` has its old files. A process that
    is killed between two files leaves what `interrupted_save` finds; the next save clears it away.
    """
    os.makedirs(directory, exist_ok=True)
    staging = tempfile.mkdtemp(prefix=_PREFIX, dir=directory)
    new, moving = os.path.join(staging, _NEW), os.path.join(staging, _MOVING)
    os.mkdir(new)
    try:
        yield new
        os.rename(new, moving)
        _replace_files(directory, moving, os.path.join(staging, _OLD))
        for unfinished in _interrupted_saves(directory):  # this save's own too, now that it is done
            shutil.rmtree(unfinished)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def interrupted_save(directory: str) -> str | None:
    """The folder with the rest of a save that was killed between two files, or None."""
    return next(iter(_interrupted_saves(directory)), None)


def _interrupted_saves(directory):
    pattern = os.path.join(glob.escape(directory), f"{_PREFIX}*", _MOVING)
    return [os.path.dirname(path) for path in glob.glob(pattern)]


def _replace_files(directory, new, old):
    """Moves every file below `new` into `directory`, and what stood there into `old`."""
    moved = []
    try:
        for name in _files_below(new):
            place = os.path.join(directory, name)
            if os.path.isdir(place):
                raise IsADirectoryError(f"{place} is a directory where a file must be written")
            os.makedirs(os.path.dirname(place), exist_ok=True)
            if os.path.lexists(place):
                os.makedirs(os.path.dirname(os.path.join(old, name)), exist_ok=True)
                os.replace(place, os.path.join(old, name))
            moved.append(name)
            os.replace(os.path.join(new, name), place)
    except BaseException:
        for name in moved:
            place = os.path.join(directory, name)
            if os.path.lexists(os.path.join(old, name)):
                os.replace(os.path.join(old, name), place)
            elif os.path.lexists(place):
                os.remove(place)
        raise


def _files_below(directory):
    """Every file in a directory and its folders, by its path in there."""
    return sorted(
        os.path.relpath(os.path.join(folder, name), directory)
        for folder, _, names in os.walk(directory)
        for name in names
    )
