"""The process of one peer. It reads requests and writes answers, one JSON object per line.

`python -m benchmarks.worker PEER MODEL_DIRECTORY THREADS SCRATCH`. The key "do" of a request is the
command:

  hello     {} -> {version, resident_mib}: imports the framework
  variants  {job, bucket, is_ragged} -> {variants}
  make      {key, job, arguments, arrays?} -> {}: prepares a task; arrays is an .npz file of batches
  outputs   {key, path} -> {}: writes the outputs of a task to an .npz file
  time      {key, calls} -> {seconds}, one value per call
  drop      {key} -> {}: deletes a task
  memory    {reset} -> {current_mib, peak_mib}; `reset` resets the peak before
  device_memory  {reset} -> {peak_bytes} of the GPU's tensors; `reset` resets the peak after

If a command raises an exception, the answer is {"error": ...}.
"""

import json
import os
import sys
import time
import traceback

import numpy as np

from . import memory_use
from .peers import PEERS
from .peers.base import Setup
from .peers.op_cases import OpCase


def load_batches(path: str) -> list[dict[str, np.ndarray]]:
    """Reads what `workers.save_batches` wrote."""
    batches = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            index, _, key = name.partition("/")
            batches.setdefault(int(index), {})[key] = arrays[name]
    return [batches[index] for index in sorted(batches)]


class Worker:
    """The commands, with one method per command."""

    def __init__(self, name: str, setup: Setup):
        self._entry = PEERS[name]
        self._setup = setup
        self._peer = None
        self._tasks = {}

    def answer(self, request: dict) -> dict:
        command = request.pop("do")
        return getattr(self, f"_{command}")(**request)

    def _hello(self):
        self._peer = self._entry.load()(self._setup)
        return {"version": self._peer.version, "resident_mib": memory_use.current_mib()}

    def _variants(self, **arguments):
        return {"variants": list(self._peer.variants(**arguments))}

    def _make(self, key, job, arguments, arrays=None):
        if arrays is not None:
            arguments = {"batches": load_batches(arrays), **arguments}
        if "case" in arguments:
            arguments["case"] = OpCase(**arguments["case"])
        task = getattr(self._peer, job)(**arguments)
        if task is not None:
            self._tasks[key] = task
        return {}

    def _outputs(self, key, path):
        np.savez(path, **self._tasks[key].outputs())
        memory_use.give_back()  # the memory that the first call needed for compiling
        return {}

    def _time(self, key, calls):
        task = self._tasks[key]
        seconds = []
        for _ in range(calls):
            start = time.perf_counter()
            task.run()
            seconds.append((time.perf_counter() - start) / task.calls_inside)
        return {"seconds": seconds}

    def _drop(self, key):
        self._tasks.pop(key, None)
        memory_use.give_back()
        return {}

    def _memory(self, reset):
        if reset:
            memory_use.give_back()
            memory_use.reset_peak()
        return {"current_mib": memory_use.current_mib(), "peak_mib": memory_use.peak_mib()}

    def _device_memory(self, reset):
        return {"peak_bytes": self._peer.device_memory(reset)}


def main():
    name, model_directory, threads, scratch = sys.argv[1:]
    # What libraries print to stdout goes to the log; only answers go to the parent.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    worker = Worker(name, Setup(model_directory, int(threads), scratch))
    for line in sys.stdin:
        try:
            answer = worker.answer(json.loads(line))
        except Exception as error:  # the parent handles it
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
