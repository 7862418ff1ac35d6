"""The versions of a model: loads new versions, switches to them and unloads old ones.

As in TensorFlow Serving, the version with the highest number answers requests. A new version is
loaded before the old one is unloaded, after its last request. Unlike in TensorFlow Serving, the
last version stays loaded if its directory is removed, and a version that answers is loaded again if
its files are replaced. A version with a label stays loaded next to the highest one.
"""

import asyncio
import contextlib
import dataclasses
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

from bert_tf.errors import UserError, user_error
from bert_tf.server.batcher import Batcher
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.logs import log
from bert_tf.server.metrics import Metrics
from bert_tf.server.model_directory import fingerprint, open_model
from bert_tf.server.served_model import ServedModel
from bert_tf.server.users import Users
from bert_tf.serving import find_versions

LOADING, AVAILABLE, UNLOADING, END = "LOADING", "AVAILABLE", "UNLOADING", "END"
_REMEMBERED = 16  # unloaded versions that the status lists


@dataclasses.dataclass
class VersionState:
    """The state of a version."""

    state: str  # TensorFlow Serving's name for it
    error: str = ""  # the reason why the version, or what replaced its files, cannot be loaded
    fingerprint: tuple = ()  # of the files that were tried; if they change, they are loaded again


@dataclasses.dataclass(eq=False)
class LoadedVersion:
    """A version that can answer requests."""

    number: int
    model: ServedModel
    batcher: Batcher
    state: VersionState
    users: Users = dataclasses.field(default_factory=Users)  # the requests that use it


@dataclasses.dataclass(eq=False)
class ModelVersions:
    """The versions of one model."""

    name: str  # in REST paths
    directory: str | os.PathLike  # of its versions, or of a single model
    make_batcher: Callable[[ServedModel], Batcher]  # makes the request queue of a loaded model
    pairs: bool = False  # whether classifiers that `save_pretrained` wrote take two texts
    trusted: bool = False  # whether SavedModels may do more than compute
    precision: str = "float32"  # as in `optimize_for_inference`, of models that are exported
    metrics: Metrics = dataclasses.field(default_factory=Metrics)
    labels: Mapping[str, int] = dataclasses.field(default_factory=dict)  # the versions by label
    # The states of the loaded and the most recent versions, by number.
    states: dict[int, VersionState] = dataclasses.field(default_factory=dict, init=False)
    # The version that answers requests without a version; None before it is loaded.
    current: LoadedVersion | None = dataclasses.field(default=None, init=False)
    _loaded: dict[int, LoadedVersion] = dataclasses.field(default_factory=dict, init=False)
    # The fingerprints of changed files of loaded versions at the last look.
    _changed: dict[int, tuple] = dataclasses.field(default_factory=dict, init=False)
    _unloading: set[asyncio.Task] = dataclasses.field(default_factory=set, init=False)

    @contextlib.contextmanager
    def use(self, number: int | None = None) -> Iterator[LoadedVersion]:
        """Yields a version, by default the current one, or raises a `RequestError` without it."""
        version = self.current if number is None else self._loaded.get(number)
        if version is None:
            latest, specific = f"Latest({self.name})", f"Specific({self.name}, {number})"
            wanted = latest if number is None else specific
            raise RequestError(HTTPStatus.NOT_FOUND, f"Servable not found for request: {wanted}")
        with version.users:
            yield version

    def number_of(self, number: int | None, label: str | None) -> int | None:
        """Returns the number of the version that has a label, without a label the given number.

        Raises:
            RequestError: If no version has the label.
        """
        if label is None:
            return number
        if label not in self.labels:
            raise invalid(f"Unrecognized servable version label: {label}")
        return self.labels[label]

    @property
    def waiting(self) -> int:
        """The number of requests in the queues."""
        return sum(version.batcher.waiting for version in self._loaded.values())

    async def load_first(self) -> None:
        """Loads the highest version, or raises a `UserError`, and the versions with labels."""
        versions = await self._find()
        if not versions:
            expected = "hold a model, or folders named 1, 2, … that each hold a model"
            raise user_error(self.directory, expected, "neither")
        newest = max(versions)
        await self._load(newest, *versions[newest])
        if newest not in self._loaded:
            raise UserError(self.states[newest].error)
        self.current = self._loaded[newest]
        await self._look_at_labelled(versions)

    async def watch(self, seconds: float) -> None:
        """Looks for new versions repeatedly, without an end."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look_again()
            except Exception:
                log.exception("Looking for new versions of %s failed; will try again", self.name)

    async def look_again(self) -> None:
        """Loads versions that should answer and are not loaded, or whose files have changed."""
        versions = await self._find()
        for number in sorted(versions, reverse=True):
            await self._look_at(number, *versions[number])
            if number in self._loaded:  # otherwise try the next lower version
                self.current = self._loaded[number]
                break
        await self._look_at_labelled(versions)
        for number in self._loaded.keys() - {self.current.number, *self.labels.values()}:
            self._unload(self._loaded.pop(number))

    async def close(self) -> None:
        """Unloads all versions after their requests have been answered."""
        self.current = None
        while self._loaded:
            self._unload(self._loaded.popitem()[1])
        await asyncio.gather(*self._unloading)

    async def _look_at_labelled(self, versions):
        for number in sorted(versions.keys() & set(self.labels.values())):
            await self._look_at(number, *versions[number])

    async def _look_at(self, number, path, files):
        """Loads a version if it is not loaded, or its files have changed."""
        state = self.states.get(number)
        if number in self._loaded:
            loaded = self._loaded[number].state.fingerprint
            if files not in (loaded, ()) and self._has_settled(number, files):
                await self._load(number, path, files)
        elif not (state and state.error and state.fingerprint == files):
            await self._load(number, path, files)

    def _has_settled(self, number, files):
        """Returns whether changed files are as at the last look, so that nobody writes them."""
        previous, self._changed[number] = self._changed.get(number), files
        return files == previous

    async def _find(self):
        """Returns the path and the fingerprint of each version."""

        def find():
            found = find_versions(self.directory)
            return {number: (path, fingerprint(path)) for number, path in found.items()}

        # This runs in a thread, because it may wait for a process that writes to the directory.
        return await asyncio.to_thread(find)

    async def _load(self, number, path, files):
        """Loads a version whose files have a fingerprint, also in place of itself."""
        old = self._loaded.get(number)
        if old is not None:
            log.info("The files of version %s of %s have changed", number, self.name)
        else:
            self._remember(number, VersionState(LOADING))
        try:
            model = await asyncio.to_thread(
                open_model, path, self.pairs, self.trusted, self.precision
            )
        except Exception as error:
            message = str(error) if isinstance(error, UserError) else repr(error)
            log.error("Version %s of %s could not be loaded: %s", number, self.name, message)
            self.metrics.failed_loads.inc()
            if old is not None:
                old.state.fingerprint = files
                old.state.error = (
                    "The files were replaced by a model that could not be loaded; the model before "
                    f"them still answers: {message}"
                )
            else:
                self._remember(number, VersionState(END, message, files))
            return
        state = VersionState(AVAILABLE, fingerprint=files)
        version = LoadedVersion(number, model, self.make_batcher(model), state)
        self._loaded[number] = version
        self._remember(number, state)
        self.metrics.loads.inc()
        log.info("Version %s of %s is loaded", number, self.name)
        if old is not None:
            self.current = version if self.current is old else self.current
            self._unload(old)

    def _unload(self, version):
        version.state.state = UNLOADING
        task = asyncio.get_running_loop().create_task(self._finish(version))
        self._unloading.add(task)
        task.add_done_callback(self._unloading.discard)

    async def _finish(self, version):
        await version.users.none.wait()
        await version.batcher.close()
        version.model = version.batcher = None
        gc.collect()  # a loaded SavedModel has reference cycles
        version.state.state = END
        self._forget()
        log.info("Version %s of %s is unloaded", version.number, self.name)

    def _remember(self, number, state):
        self.states[number] = state
        self._forget()

    def _forget(self):
        ended = [key for key, value in self.states.items() if value.state == END]
        for key in ended[:-_REMEMBERED]:
            del self.states[key]
