"""The directory in which a pipeline keeps its work, so that no work is lost or done twice.

Beam may run an element again: a worker was lost, or is slow. Each piece of work therefore writes
files with names of their own, and then, atomically, a small file with its result (`once`). Only
results count: what an interrupted attempt left is never read, and the next attempt, also of
another run of the same program, takes the results that exist.

All workers must reach the directory: it is local for the DirectRunner, otherwise on a shared or
remote file system.

Dead letters are the elements that a pipeline could not process, with the reason, as JSON lines:

    {"source": "text/a.txt", "position": 17, "element": "what it was", "error": "why"}

`source` is the path of the file; `position` is where the element begins in it, as each pipeline
documents (null if it is the whole file); `element` is cut to `ELEMENT_CHARACTERS`.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from apache_beam.io.filesystems import FileSystems

from bert_tf.beam.file_access import is_remote, open_file, read_segment, remove_tree, rename
from bert_tf.errors import DataError, user_error

RESULT = ".result"  # how the names of files with results end


@dataclasses.dataclass(frozen=True)
class Workspace:
    """A directory for the work of one run.

    Args:
        directory: Its path; `of` gives each run a name of its own.
    """

    directory: str

    @classmethod
    def of(cls, place: str, run: Any) -> "Workspace":
        """Returns the workspace in the directory `place` for the run that the JSON `run` describes.

        The same description gives the same workspace, so that a run is continued after it was
        interrupted; another one gives another.
        """
        digest = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
        return cls(f"{place.rstrip('/') or '/'}/.beam-{digest}")

    def path(self, name: str) -> str:
        """Returns the path of a file in the directory."""
        return f"{self.directory}/{name}"

    def new_path(self, name: str) -> str:
        """Returns a path that no other attempt uses; it begins with the name."""
        return self.path(f"{name}.{uuid.uuid4().hex}")

    def once(self, name: str, work: Callable[[], Any]) -> Any:
        """Returns the JSON result of the work `name`: of an earlier attempt, or of `work()`.

        The files that the work wrote must be named in its result, by `new_path`.
        """
        result = self.result(name)
        if result is None:
            result = work()
            unfinished = self.new_path(name)
            with open_file(unfinished, "wb") as file:
                file.write(json.dumps(result).encode())
            rename(unfinished, self._result_path(name))
        return result

    def file(self, name: str, write: Callable[[str], object]) -> str:
        """Returns the file that is the result of the work `name`, which `write(path)` writes."""

        def work() -> str:
            path = self.new_path(name)
            write(path)
            return path

        return self.once(name, work)

    def result(self, name: str) -> Any:
        """Returns the result of the work `name`, or None if it is not done."""
        path = self._result_path(name)
        if not FileSystems.exists(path):
            return None
        with open_file(path) as file:
            return json.loads(file.read())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the directory; while the block runs, another local process cannot use it.

        Raises `UserError` if another process is using it.
        """
        if is_remote(self.directory):
            yield
            return
        os.makedirs(self.directory, exist_ok=True)
        with open(self.path("lock"), "wb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                expected = "not be started twice at a time"
                received = f"another process that is working in {self.directory}"
                raise user_error("The same run", expected, received) from None
            except OSError:  # a file system without locks
                pass
            yield

    def remove(self) -> None:
        """Removes the directory."""
        remove_tree(self.directory)

    def _result_path(self, name: str) -> str:
        return self.path(f"{name}{RESULT}")


ELEMENT_CHARACTERS = 1000


class DeadLetter(NamedTuple):
    """An element that could not be processed.

    Args:
        source: The path of the file that it is from.
        position: Where it begins in the file, or None for the whole file.
        element: What it was, or as much of it as can be shown as text.
        error: Why it could not be processed.

    Example:
        >>> from bert_tf.beam.workspace import DeadLetter
        >>> DeadLetter("a.txt", 17, "x" * 2000, "it is too long").to_json()[:60]
        '{"source": "a.txt", "position": 17, "element": "xxxxxxxxxxxx'
    """

    source: str
    position: int | None
    element: str
    error: str

    @classmethod
    def of(
        cls, source: str, position: int | None, element: str | bytes, error: object
    ) -> "DeadLetter":
        """Returns a dead letter of text or bytes; bytes that are not UTF-8 are shown as `\\xff`."""
        shown = element[: 4 * ELEMENT_CHARACTERS]  # a character has at most 4 bytes
        if isinstance(shown, bytes):
            shown = shown.decode("utf-8", "backslashreplace")
        return cls(source, position, shown[:ELEMENT_CHARACTERS], str(error))

    def to_json(self) -> str:
        """Returns the dead letter as a line of JSON, without its line end.

        Surrogates, as in names of files that are not UTF-8, are escaped: UTF-8 does not have them.
        """
        shown = self._replace(element=self.element[:ELEMENT_CHARACTERS])
        line = json.dumps(shown._asdict(), ensure_ascii=False)
        return line.encode("utf-8", "backslashreplace").decode("utf-8")


def letters_of_blocks(
    workspace: Workspace, names: Iterable[str], segment: int, refuse: bool
) -> Iterator[DeadLetter]:
    """Returns the dead letters that the workers wrote, block by block of the files.

    Each block of a file that cannot be read has a letter of the whole file; the first is returned.
    `names` are those of the blocks' work, in order; the letters of a block are the `segment` of its
    file, as JSON. With `refuse`, raises the first dead letter's error as `DataError`.
    """
    segments = (read_segment(workspace.result(name), segment) for name in names)
    letters = _without_repetitions(
        DeadLetter(*item) for part in segments for item in json.loads(part)
    )
    if refuse:
        for source, _, _, error in letters:
            raise DataError(error if source in error else f"{source}: {error}")
    return letters


def _without_repetitions(letters: Iterable[DeadLetter]) -> Iterator[DeadLetter]:
    whole = None
    for letter in letters:
        if letter.position is None and letter.source == whole:
            continue
        whole = letter.source if letter.position is None else None
        yield letter
