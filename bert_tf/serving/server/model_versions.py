"""The versions of a model: loads what appears, switches to it, unloads what it replaces.

As in TensorFlow Serving the highest number answers, a new version answers before the old one goes,
and the old one goes when its last request is answered. Otherwise than there, the last version stays
when its directory disappears.
"""

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable

from bert_tf.errors import UserError
from bert_tf.serving.server.batcher import Batcher
from bert_tf.serving.server.errors import NOT_FOUND, RequestError
from bert_tf.serving.server.model_directory import find_versions, open_model
from bert_tf.serving.server.served_model import ServedModel

log = logging.getLogger("bert_tf.serving")

LOADING, AVAILABLE, UNLOADING, END = "LOADING", "AVAILABLE", "UNLOADING", "END"
_REMEMBERED = 16  # versions that have ended, in the status


@dataclasses.dataclass
class VersionState:
    """What became of a version.

    Attributes:
        state: TensorFlow Serving's name of it.
        error: Why it could not be loaded.
        fingerprint: Of the files that could not be loaded; when they change it is tried again.
    """

    state: str
    error: str = ""
    fingerprint: tuple = ()


class LoadedVersion:
    """A version that answers.

    Attributes:
        number: The version.
        model: Its model.
        batcher: The queue in front of it.
    """

    def __init__(self, number: int, model: ServedModel, batcher: Batcher):
        self.number = number
        self.model = model
        self.batcher = batcher
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @contextlib.contextmanager
    def in_use(self):
        """While requests are inside the version is not unloaded."""
        self._users += 1
        self._unused.clear()
        try:
            yield self
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def wait_until_unused(self) -> None:
        """Returns when no request is inside."""
        await self._unused.wait()


class ModelVersions:
    """The versions of one model.

    Args:
        name: The model's name in paths.
        directory: Where its versions appear, or a model itself.
        make_batcher: Makes the queue of a loaded model.
        pairs: Whether classifiers that `save_pretrained` wrote take two texts.
        trusted: Whether SavedModels may do more than compute.

    Attributes:
        name: The model's name.
        states: Of every version seen lately.
    """

    def __init__(
        self,
        name: str,
        directory: str | os.PathLike,
        make_batcher: Callable[[ServedModel], Batcher],
        pairs: bool = False,
        trusted: bool = False,
    ):
        self.name = name
        self.states: dict[int, VersionState] = {}
        self._directory = directory
        self._make_batcher = make_batcher
        self._pairs = pairs
        self._trusted = trusted
        self._current: LoadedVersion | None = None
        self._unloading: set[asyncio.Task] = set()

    @property
    def current(self) -> LoadedVersion | None:
        """The version that requests go to which name none."""
        return self._current

    @contextlib.asynccontextmanager
    async def use(self, number: int | None = None) -> AsyncIterator[LoadedVersion]:
        """A version for the time of one request.

        Raises:
            RequestError: If it is not there.
        """
        current = self._current
        if current is None or number not in (None, current.number):
            wanted = f"Specific({self.name}, {number})"
            if number is None:
                wanted = f"Latest({self.name})"
            raise RequestError(NOT_FOUND, f"Servable not found for request: {wanted}")
        with current.in_use():
            yield current

    async def load_first(self) -> None:
        """Loads the highest version.

        Raises:
            UserError: If there is none, or it cannot be loaded.
        """
        versions = await self._find()
        if not versions:
            raise UserError(
                f"{self._directory}: a model, or folders named 1, 2, … with one each, were "
                "expected. Received: neither"
            )
        newest = max(versions)
        await self._load(newest, versions[newest])
        if self._current is None:
            raise UserError(self.states[newest].error)

    async def watch(self, seconds: float) -> None:
        """Looks for new versions for ever."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look_again()
            except Exception:
                log.exception("Looking for versions of %s failed; trying again", self.name)

    async def look_again(self) -> None:
        """Loads the highest version, if it is another than the one that answers."""
        versions = await self._find()
        for number in sorted(versions, reverse=True):
            if self._current is not None and self._current.number == number:
                return
            state = self.states.get(number)
            if state and state.error and state.fingerprint == _fingerprint(versions[number]):
                continue  # as broken as before: the next lower one
            await self._load(number, versions[number])
            if self._current is not None and self._current.number == number:
                return

    async def close(self) -> None:
        """Unloads everything when the requests that are inside are answered."""
        if self._current is not None:
            self._unload(self._current)
            self._current = None
        await asyncio.gather(*self._unloading)

    async def _find(self):
        # It may wait for a writer of the directory, and requests may not.
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, find_versions, self._directory)

    async def _load(self, number, path):
        self._remember(number, VersionState(LOADING))
        fingerprint = _fingerprint(path)
        try:
            model = await asyncio.get_running_loop().run_in_executor(
                None, open_model, path, self._pairs, self._trusted
            )
        except Exception as error:
            message = str(error) if isinstance(error, UserError) else repr(error)
            log.error("Version %s of %s cannot be loaded: %s", number, self.name, message)
            self._remember(number, VersionState(END, message, fingerprint))
            return
        old, self._current = self._current, LoadedVersion(number, model, self._make_batcher(model))
        self._remember(number, VersionState(AVAILABLE))
        log.info("Version %s of %s answers", number, self.name)
        if old is not None:
            self._unload(old)

    def _unload(self, version):
        self._remember(version.number, VersionState(UNLOADING))
        task = asyncio.get_running_loop().create_task(self._finish(version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _finish(self, version):
        await version.wait_until_unused()
        await version.batcher.close()
        version.model = version.batcher = None
        gc.collect()  # a loaded SavedModel is full of cycles
        self._remember(version.number, VersionState(END))
        log.info("Version %s of %s is unloaded", version.number, self.name)

    def _remember(self, number, state):
        self.states[number] = state
        ended = [key for key, value in self.states.items() if value.state == END]
        for key in ended[:-_REMEMBERED]:
            del self.states[key]


def _fingerprint(path):
    """Changes with the files below a directory."""
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(folder, name))
                found.append((folder, name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
