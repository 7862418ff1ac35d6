"""The directory in which a pipeline keeps its work, so that no work is lost or done twice.

Beam may run an element again: a worker was lost, or is slow. Each piece of work therefore writes
files with names of their own, and then, atomically, a small file with its result (`once`). Only
results count: what an interrupted attempt left is never read, and the next attempt, also of
another run of the same program, takes the results that exist.

All workers must reach the directory: it is local for the DirectRunner, otherwise on a shared or
remote file system.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from apache_beam.io.filesystems import FileSystems

from bert_tf.beam.file_access import is_remote, open_file, remove_tree, rename
from bert_tf.errors import user_error

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
