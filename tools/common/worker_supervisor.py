"""Starts a group of workers again when one of them dies or hangs, until they have finished."""

import contextlib
import dataclasses
import signal
import time
from collections.abc import Callable

from bert_tf.base.supervision import PEER_GONE
from bert_tf.tools.common.worker_group import POLL_SECONDS, WorkerGroup, report

# How long a worker that says that another one is gone waits for that one to end and show why.
CAUSE_SECONDS = 5.0


@dataclasses.dataclass(frozen=True)
class RestartPolicy:
    """When workers are started again.

    Args:
        max_restarts: The number of restarts in a row without progress.
        progress_seconds: Workers that have run for so long have made progress.
        backoff: The seconds before the first restart; they double with each further one.
        max_backoff: The longest wait in seconds.
        hang_timeout: The seconds without a heartbeat after which a worker hangs, or 0: never.
        final_statuses: The exit statuses after which no worker is started again.
    """

    max_restarts: int = 10
    progress_seconds: float = 600.0
    backoff: float = 1.0
    max_backoff: float = 60.0
    hang_timeout: float = 600.0
    final_statuses: tuple[int, ...] = (1, 2, 130, 143)

    def wait_before(self, restart: int) -> float:
        """Returns the seconds before a restart; the first one in a row is number 1."""
        # Not 2**restart alone: a float has no room for the 1025th.
        return min(self.max_backoff, self.backoff * 2.0 ** min(restart - 1, 64))


@dataclasses.dataclass(frozen=True)
class Fault:
    """Why a group of workers ended.

    Args:
        worker: The index of the worker.
        status: Its exit status; 128 + the signal for a killed one, as shells show it.
        reason: What happened, for the user.
        silence: How many seconds it has shown no heartbeat, if it hangs.
    """

    worker: int
    status: int
    reason: str
    silence: float = 0.0


class Supervisor:
    """Runs workers until they have finished, cannot go on, or are asked to stop.

    Args:
        make_group: Makes a new `WorkerGroup`.
        policy: The `RestartPolicy`.
        clock: Returns seconds.
        wait: Waits the given number of seconds.
    """

    def __init__(
        self,
        make_group: Callable[[], WorkerGroup],
        policy: RestartPolicy,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ):
        self._make_group, self._policy, self._clock, self._wait = make_group, policy, clock, wait
        self._signals = []

    def run(self) -> int:
        """Returns the exit status: 0 after all workers have finished.

        SIGTERM and SIGINT are passed on as SIGTERM, on which programs save and stop. A second one
        kills the workers.
        """
        with self._received_signals():
            restarts = 0  # in a row, without progress
            while True:
                start = self._clock()
                fault = self._run_once()
                if fault is None:
                    return 0
                if self._signals:
                    report(f"stopped by {signal.Signals(self._signals[0]).name}")
                    return 128 + self._signals[0]
                if fault.status in self._policy.final_statuses:
                    report(f"{fault.reason}: a restart would not help")
                    return fault.status
                seconds = self._clock() - start - fault.silence  # a hang is no progress
                restarts = 1 if seconds >= self._policy.progress_seconds else restarts + 1
                if restarts > self._policy.max_restarts:
                    report(f"{fault.reason}: no progress after {restarts - 1} restarts, giving up")
                    return fault.status
                wait = self._policy.wait_before(restarts)
                report(
                    f"{fault.reason}: starting all workers again in {wait:g} s "
                    f"(restart {restarts} of {self._policy.max_restarts} without progress)"
                )
                if not self._pause(wait):
                    return 128 + self._signals[0]

    def _run_once(self) -> Fault | None:
        """Runs the workers until all have ended or one fails. Returns the first fault, or None."""
        fault, sent, deadline = None, 0, None
        with self._make_group() as group:
            while group.is_running():
                if len(self._signals) > sent:
                    sent += 1
                    if sent == 1:
                        group.terminate()
                    else:
                        group.kill()
                for worker, status in group.ended():
                    if status and (fault is None or fault.status == PEER_GONE):
                        fault = _fault_of(worker, status)
                hang = self._hang(group)
                if hang is not None:
                    return fault or hang
                if fault is not None and not self._signals:  # asked to stop, they end by themselves
                    deadline = deadline or self._clock() + CAUSE_SECONDS
                    # A worker whose peer is gone may end before that peer shows why.
                    if fault.status != PEER_GONE or self._clock() > deadline:
                        return fault
        return fault

    def _hang(self, group):
        worker, seconds = group.longest_silence()
        if not self._policy.hang_timeout or seconds <= self._policy.hang_timeout:
            return None
        return Fault(
            worker,
            PEER_GONE,
            f"worker {worker} hangs: no heartbeat for more than {self._policy.hang_timeout:g} s",
            seconds,
        )

    def _pause(self, seconds):
        """Waits, and returns whether no signal came."""
        end = self._clock() + seconds
        while not self._signals and self._clock() < end:
            self._wait(min(POLL_SECONDS, end - self._clock()))
        return not self._signals

    @contextlib.contextmanager
    def _received_signals(self):
        def receive(number, frame):
            self._signals.append(number)

        previous = {n: signal.signal(n, receive) for n in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def _fault_of(worker, status):
    if status < 0:
        known = {each.value: each.name for each in signal.Signals}  # without real-time signals
        name = known.get(-status, f"signal {-status}")
        return Fault(worker, 128 - status, f"worker {worker} was ended by {name}")
    return Fault(worker, status, f"worker {worker} ended with status {status}")
