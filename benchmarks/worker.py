"""The process of one peer: `python -m benchmarks.worker`.

It reads pickled requests from stdin, `(command, arguments)`, where the command is a method of
`Worker`. It writes pickled answers, `(result, None)` or `(None, error message)`.
"""

import os
import pickle
import sys
import time
import traceback

from . import memory_use
from .peers import PEERS


class Worker:
    """The commands; `workers.Worker` calls them from the parent process."""

    def __init__(self):
        self._peer = None
        self._tasks = {}

    def answer(self, command, arguments):
        try:
            return getattr(self, command)(**arguments), None
        except Exception as error:  # the parent handles it
            traceback.print_exc()
            return None, f"{type(error).__name__}: {error}"

    def hello(self, name, setup):
        """Imports the framework; returns its version and the memory that it occupies, in MiB."""
        self._peer = PEERS[name].load()(setup)
        return self._peer.version, memory_use.resident_mib(memory_use.CURRENT)

    def variants(self, **arguments):
        return self._peer.variants(**arguments)

    def make(self, key, job, arguments):
        self._tasks[key] = getattr(self._peer, job)(**arguments)

    def outputs(self, key):
        outputs = self._tasks[key].outputs()
        memory_use.give_back()  # what the first call needed for compiling
        return outputs

    def time(self, key, calls, clock="perf_counter"):
        """Returns the seconds of each call, by a function of the module `time`."""
        task, now = self._tasks[key], getattr(time, clock)
        seconds = []
        for _ in range(calls):
            start = now()
            task.run()
            seconds.append((now() - start) / task.calls_inside)
        return seconds

    def processor_seconds(self):
        """Returns the processor time since the start of the process."""
        return time.process_time()

    def drop(self, key):
        self._tasks.pop(key, None)
        memory_use.give_back()

    def reset_peak(self):
        memory_use.give_back()
        memory_use.reset_peak()

    def peak_mib(self):
        return memory_use.resident_mib(memory_use.PEAK)

    def device_memory(self, reset=False):
        """Returns the peak MiB of the tensors on the GPU since the last reset; None without one."""
        return self._peer.device_memory(reset)


def main():
    # What libraries print to stdout goes to the log; only answers go to the parent.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    worker = Worker()
    while True:
        try:
            command, arguments = pickle.load(sys.stdin.buffer)
        except EOFError:  # the parent has closed the pipe
            return
        pickle.dump(worker.answer(command, arguments), answers)
        answers.flush()


if __name__ == "__main__":
    main()
