"""The limits of the machine: multiply-adds, memory reads, large matmuls and copies."""

import ctypes
import functools
import importlib.util
import os
import shutil
import subprocess
import threading
import time

import numpy as np

from .base import Peer, Task, matmul_inputs

# (M, K, N) of BERT-base's feed-forward on many tokens, and a cube; the fastest of them is the peak.
MATMULS = ((4096, 768, 3072), (4096, 3072, 768), (2048, 2048, 2048))
_RUN_SECONDS = 0.02  # approximate length of a measurement
_READ_STEP = 12 * 16  # the count of `read_all` in limits.cc must be a multiple of this


def _task(run, amount, calls_inside=1) -> Task:
    return Task(run, lambda: {"amount": np.float64(amount)}, calls_inside)


def _threaded_task(function, threads, amount) -> Task:
    """Calls `function(thread)` on several threads at a time; `amount` is the work of all of them.

    Each thread calls it many times, so that the start of the threads hardly counts.
    """

    def run(calls):
        def repeat(thread):
            for _ in range(calls):
                function(thread)

        started = [threading.Thread(target=repeat, args=(thread,)) for thread in range(threads)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join()

    run(1)
    start = time.perf_counter()
    run(1)
    calls = max(1, min(10000, round(_RUN_SECONDS / (time.perf_counter() - start))))
    return _task(functools.partial(run, calls), amount, calls)


class Machine(Peer):
    """Measures the machine. The variants of matmul are the installed libraries."""

    version = f"NumPy {np.__version__}"

    def variants(self, job, bucket, is_ragged):
        libraries = [name for name in ("tensorflow", "torch") if importlib.util.find_spec(name)]
        return ("numpy", *libraries) if job == "matmul" else ("default",)

    @functools.cached_property
    def _tensorflow(self):
        from . import keras_common

        keras_common.set_threads(self.setup.threads)
        return keras_common.tf

    def matmul(self, shape, variant):
        m, k, n = shape
        a, b = matmul_inputs(shape)
        if variant == "torch":
            import torch

            torch.set_num_threads(self.setup.threads)
            a, b = torch.from_numpy(a), torch.from_numpy(b)
            c = torch.empty(m, n)
            multiply = functools.partial(torch.mm, a, b, out=c)
        elif variant == "tensorflow":
            tf = self._tensorflow
            a, b = tf.constant(a), tf.constant(b)
            multiply = functools.partial(tf.function(tf.matmul), a, b)
        else:
            multiply = functools.partial(np.matmul, a, b, out=np.empty((m, n), np.float32))
        return _task(multiply, 2 * m * k * n)

    def copy(self, bytes_moved):
        """Measures copying `bytes_moved / 2` bytes, divided among the threads."""
        elements, threads = bytes_moved // 2 // 4, self.setup.threads
        source, target = np.ones(elements, np.float32), np.zeros(elements, np.float32)
        bounds = np.linspace(0, elements, threads + 1).astype(int)
        parts = [(target[a:b], source[a:b]) for a, b in zip(bounds, bounds[1:])]
        return _threaded_task(lambda thread: np.copyto(*parts[thread]), threads, bytes_moved)

    @functools.cached_property
    def _library(self):
        """The library of limits.cc, compiled for this processor."""
        compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            raise FileNotFoundError(
                "A C++ compiler must be installed. Received: none. Install g++, or set CXX."
            )
        path = os.path.join(self.setup.scratch, "liblimits.so")
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "limits.cc")
        flags = ["-O3", "-march=native", "-ffp-contract=fast", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, source, "-o", path], check=True)
        library = ctypes.CDLL(path)
        for dtype in ("float32", "bfloat16", "int8"):
            multiply_adds = getattr(library, f"{dtype}_multiply_adds")
            multiply_adds.argtypes, multiply_adds.restype = [ctypes.c_int64], ctypes.c_int64
        library.read_all.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        return library

    def multiply_adds(self, dtype):
        """Measures multiply-adds in registers on all threads, in operations.

        They are of float32, of bfloat16 with sums in float32, or of int8 with sums in int32.
        """
        rounds, threads = 200_000, self.setup.threads
        multiply_adds = getattr(self._library, f"{dtype}_multiply_adds")
        operations = threads * multiply_adds(rounds)
        return _threaded_task(lambda thread: multiply_adds(rounds), threads, operations)

    def read(self, numbers):
        """Measures reading about `numbers` float32 values, divided among the threads, in bytes."""
        threads = self.setup.threads
        part = max(1, numbers // threads // _READ_STEP) * _READ_STEP
        values = np.ones(threads * part, np.float32)
        address = values.ctypes.data

        def read_part(thread):
            self._library.read_all(address + 4 * thread * part, part)
            return values  # keeps the array alive

        return _threaded_task(read_part, threads, values.nbytes)
