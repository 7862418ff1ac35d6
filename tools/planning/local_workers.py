"""Processes on this machine that measure at the same time, as the workers of one training run."""

import concurrent.futures
import contextlib
import json
import socket
import statistics
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.peers import OURS_PARTS
from benchmarks.workers import Worker


class LocalWorkers:
    """Workers of the peer `OURS_PARTS`, which are asked the same at the same time.

    Args:
        workers: The workers.
        threads: A pool with one thread for each of them.
    """

    def __init__(self, workers: list[Worker], threads: concurrent.futures.ThreadPoolExecutor):
        self._workers = workers
        self._threads = threads

    def make(self, job: str, **arguments) -> int:
        """Prepares a task in all workers and returns its key."""
        return self._all(lambda worker: worker.make(job, **arguments))[0]

    def first_call(self, key: int) -> None:
        """Calls a task once, which compiles it."""
        self._all(lambda worker: worker.time(key, 1))

    def seconds(self, key: int, turn_seconds: float) -> float:
        """Returns the time of one call after the first; of several workers the mean."""
        expected = max(self._all(lambda worker: worker.time(key, 1)[0]))
        calls = max(1, round(turn_seconds / expected))
        # All workers make as many calls: each waits for the others in an all-reduce.
        times = self._all(lambda worker: statistics.median(worker.time(key, calls)))
        return sum(times) / len(times)

    def measure(self, job: str, turn_seconds: float, **arguments) -> float:
        """Prepares a task, measures it and drops it."""
        key = self.make(job, **arguments)
        self.first_call(key)
        seconds = self.seconds(key, turn_seconds)
        self.drop(key)
        return seconds

    def drop(self, key: int) -> None:
        self._all(lambda worker: worker.drop(key))

    def ask(self, command: str) -> list[Any]:
        return self._all(lambda worker: worker.ask(command))

    @property
    def imported_mib(self) -> float:
        """The memory of the first worker after its imports, in MiB."""
        return self._workers[0].imported_mib

    def _all(self, function: Callable[[Worker], Any]) -> list[Any]:
        return list(self._threads.map(function, self._workers))


@contextlib.contextmanager
def local_workers(number: int, threads: int) -> Iterator[LocalWorkers]:
    """Starts workers with some threads each; several train together on the loopback.

    Args:
        number: Number of workers.
        threads: Threads of each.

    Raises:
        PeerFailed: If one does not start.
    """
    addresses = [f"localhost:{port}" for port in _free_ports(number)]
    with contextlib.ExitStack() as stack, _pool(number) as pool:

        def start(index):
            environment = {"BERT_TF_OPS": "auto"}
            if number > 1:
                task = {"type": "worker", "index": index}
                cluster = {"cluster": {"worker": addresses}, "task": task}
                environment["TF_CONFIG"] = json.dumps(cluster)
            return Worker(OURS_PARTS, "", threads, environment=environment)

        # A worker waits for the others before it has started.
        started = [pool.submit(start, index) for index in range(number)]
        concurrent.futures.wait(started)
        for future in started:
            if future.exception() is None:
                stack.enter_context(contextlib.closing(future.result()))
        yield LocalWorkers([future.result() for future in started], pool)


def _pool(number):
    return concurrent.futures.ThreadPoolExecutor(number)


def _free_ports(number):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]
