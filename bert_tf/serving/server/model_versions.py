"""The versions of a model: loads new versions, switches to them and unloads old ones.

As in TensorFlow Serving, the version with the highest number answers requests. A new version is
loaded before the old one is unloaded, after its last request. Unlike in TensorFlow Serving, the
last version stays loaded if its directory is removed.
"""

import asyncio
import contextlib
import dataclasses
import gc
import logging
import os
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

from bert_tf.errors import UserError
from bert_tf.models.inference_precision import FLOAT32
from bert_tf.serving.server.batcher import Batcher
from bert_tf.serving.server.errors import RequestError
from bert_tf.serving.server.model_directory import find_versions, open_model
from bert_tf.serving.server.served_model import ServedModel
from bert_tf.serving.server.users import Users

log = logging.getLogger("bert_tf.serving")

LOADING, AVAILABLE, UNLOADING, END = "LOADING", "AVAILABLE", "UNLOADING", "END"
_REMEMBERED = 16  # unloaded versions that the status lists


@dataclasses.dataclass
class VersionState:
    """The state of a version."""

    state: str  # TensorFlow Serving's name for it
    error: str = ""  # the reason why the version could not be loaded
    fingerprint: tuple = ()  # of those files; if they change, loading is tried again


@dataclasses.dataclass(eq=False)
class LoadedVersion:
    """A version that can answer requests."""

    number: int
    model: ServedModel
    batcher: Batcher
    users: Users = dataclasses.field(default_factory=Users)  # the requests that use it


@dataclasses.dataclass(eq=False)
class ModelVersions:
    """The versions of one model."""

    name: str  # in REST paths
    directory: str | os.PathLike  # of its versions, or of a single model
    make_batcher: Callable[[ServedModel], Batcher]  # makes the request queue of a loaded model
    pairs: bool = False  # whether classifiers that `save_pretrained` wrote take two texts
    trusted: bool = False  # whether SavedModels may do more than compute
    precision: str = FLOAT32  # of models that `save_pretrained` wrote: of `optimize_for_inference`
    # The states of the loaded and the most recent versions, by number.
    states: dict[int, VersionState] = dataclasses.field(default_factory=dict, init=False)
    # The version that answers requests without a version; None before it is loaded.
    current: LoadedVersion | None = dataclasses.field(default=None, init=False)
    _unloading: set[asyncio.Task] = dataclasses.field(default_factory=set, init=False)

    @contextlib.asynccontextmanager
    async def use(self, number: int | None = None) -> AsyncIterator[LoadedVersion]:
        """Yields a version, by default the current one, or raises a `RequestError` without it."""
        current = self.current
        if current is None or number not in (None, current.number):
            latest, specific = f"Latest({self.name})", f"Specific({self.name}, {number})"
            wanted = latest if number is None else specific
            raise RequestError(HTTPStatus.NOT_FOUND, f"Servable not found for request: {wanted}")
        with current.users:
            yield current

    async def load_first(self) -> None:
        """Loads the highest version, or raises a `UserError`."""
        versions = await self._find()
        if not versions:
            raise UserError(
                f"{self.directory} must hold a model, or folders named 1, 2, … that each hold a "
                "model. Received: neither"
            )
        newest = max(versions)
        await self._load(newest, versions[newest])
        if self.current is None:
            raise UserError(self.states[newest].error)

    async def watch(self, seconds: float) -> None:
        """Looks for new versions repeatedly, without an end."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look_again()
            except Exception:
                log.exception("Looking for new versions of %s failed; will try again", self.name)

    async def look_again(self) -> None:
        """Loads the highest version if it is not the current one."""
        versions = await self._find()
        for number in sorted(versions, reverse=True):
            state = self.states.get(number)
            if state and state.error and state.fingerprint == _fingerprint(versions[number]):
                continue  # its files have not changed, so try the next lower version
            if self.current is None or self.current.number != number:
                await self._load(number, versions[number])
            if self.current is not None and self.current.number == number:
                return

    async def close(self) -> None:
        """Unloads all versions after their requests have been answered."""
        if self.current is not None:
            self._unload(self.current)
            self.current = None
        await asyncio.gather(*self._unloading)

    async def _find(self):
        # In a thread, because it may wait for a process that writes to the directory.
        return await asyncio.to_thread(find_versions, self.directory)

    async def _load(self, number, path):
        self._remember(number, VersionState(LOADING))
        fingerprint = _fingerprint(path)
        try:
            model = await asyncio.to_thread(
                open_model, path, self.pairs, self.trusted, self.precision
            )
        except Exception as error:
            message = str(error) if isinstance(error, UserError) else repr(error)
            log.error("Version %s of %s could not be loaded: %s", number, self.name, message)
            self._remember(number, VersionState(END, message, fingerprint))
            return
        old, self.current = self.current, LoadedVersion(number, model, self.make_batcher(model))
        self._remember(number, VersionState(AVAILABLE))
        log.info("Version %s of %s is loaded", number, self.name)
        if old is not None:
            self._unload(old)

    def _unload(self, version):
        self._remember(version.number, VersionState(UNLOADING))
        task = asyncio.get_running_loop().create_task(self._finish(version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _finish(self, version):
        await version.users.none.wait()
        await version.batcher.close()
        version.model = version.batcher = None
        gc.collect()  # a loaded SavedModel has reference cycles
        self._remember(version.number, VersionState(END))
        log.info("Version %s of %s is unloaded", version.number, self.name)

    def _remember(self, number, state):
        self.states[number] = state
        ended = [key for key, value in self.states.items() if value.state == END]
        for key in ended[:-_REMEMBERED]:
            del self.states[key]


def _fingerprint(path):
    """Returns a value that changes when files below a directory change."""
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                status = os.stat(os.path.join(folder, name))
                found.append((folder, name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
