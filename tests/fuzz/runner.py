"""Opens mutants of every format, in child processes with limits; prints what ended badly.

    python -m tests.fuzz.runner DIRECTORY [--count 300] [--seed 0] [--formats tf1 keras …]
    python -m tests.fuzz.runner DIRECTORY --formats tf1 --only 1234     # one mutant, with its error

Each mutant must end in an error of this package or in an opened model. The process that forks has
imported everything and started no thread of TensorFlow; a child opens many mutants and notes which
one is in progress, so a crash, a hang or too much memory names its mutant, and the next child goes
on after it.
"""

import argparse
import ctypes
import json
import logging
import mmap
import os
import pathlib
import resource
import signal
import struct
import sys
import time
import traceback

import numpy as np

MEGABYTE = 2**20
MAX_SECONDS = 5  # of the processor, so that a busy machine does not matter
MAX_RESIDENT = 200 * MEGABYTE  # above what the valid sample took
# Beyond this an allocation fails; TensorFlow's threads reserve addresses that they do not use.
_MAX_ADDRESSES = 1024 * MEGABYTE
# A child opens at most so many, which one seed makes; the next child goes on with another seed.
_PER_CHILD = 1000
_MAX_FAILURES = 20  # of a format; then the rest is not tried
_M_ARENA_MAX = -8  # of glibc's malloc.h


def memory(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{key}:"))


def reset_peak() -> None:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def numbered_mutants(format, directory: pathlib.Path, seed: int, first: int):
    """The mutants from number `first` to the end of its thousand: (number, files, is_damage)."""
    from tests.fuzz.formats import mutants

    part = first // _PER_CHILD
    stream = mutants(format, directory, seed * _PER_CHILD + part)
    numbers = range(part * _PER_CHILD, (part + 1) * _PER_CHILD)
    for index, (files, is_damage) in zip(numbers, stream, strict=False):
        if index >= first:
            yield index, files, is_damage


class Notes:
    """How far a child has come, even if it dies: memory that both processes share."""

    _LAYOUT = struct.Struct("<qqqq")  # next mutant, opened, refused, whether it is in progress

    def __init__(self):
        self._memory = mmap.mmap(-1, self._LAYOUT.size)

    def write(self, *values: int) -> None:
        self._LAYOUT.pack_into(self._memory, 0, *values)

    def read(self) -> tuple[int, int, int, int]:
        return self._LAYOUT.unpack_from(self._memory, 0)


class Job:
    """The mutants of one format."""

    def __init__(self, name: str, directory: pathlib.Path, seed: int, count: int):
        from tests.fuzz.formats import FORMATS

        self.name, self.seed, self.count = name, seed, count
        self.directory = directory
        self._originals = {file: (directory / file).read_bytes() for file in FORMATS[name].lies}
        self.notes = Notes()
        self.failures = []
        self.seconds = 0.0

    @property
    def is_done(self) -> bool:
        return self.notes.read()[0] >= self.count or len(self.failures) >= _MAX_FAILURES

    def start_child(self) -> int:
        self._started = time.monotonic()
        self._report = self.directory.with_name(f"{self.directory.name}.json")
        self._report.unlink(missing_ok=True)
        self._restore(self._originals)  # a child that was killed has left its mutant
        child = os.fork()
        if child == 0:
            try:
                self._run()
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        return child

    def child_ended(self, status: int) -> None:
        self.seconds += time.monotonic() - self._started
        index, opened, refused, is_running = self.notes.read()
        if self._report.exists():
            self.failures += json.loads(self._report.read_text())
        if status != 0:
            if os.WIFSIGNALED(status):
                number = os.WTERMSIG(status)
                reason = f"ended by {signal.Signals(number).name}"
                if number == signal.SIGPROF:
                    reason = f"took more than {MAX_SECONDS} s"
            else:
                reason = "the process ended"
            if not is_running:
                raise RuntimeError(f"{self.name}: the sample itself: {reason}")
            self.failures.append(f"{self.name} mutant {index}: {reason}")
            self.notes.write(index + 1, opened, refused, 0)

    def _run(self):
        """In the child: opens mutants until one kills it, or enough are done."""
        from bert_tf.errors import UserError
        from tests.fuzz.formats import FORMATS

        logging.getLogger("bert_tf").setLevel(logging.CRITICAL)
        format = FORMATS[self.name]
        expected = format.open(self.directory)
        first, opened, refused, _ = self.notes.read()
        resource.setrlimit(
            resource.RLIMIT_AS, (memory("VmSize") + _MAX_ADDRESSES, resource.RLIM_INFINITY)
        )
        failures = []
        mutants = numbered_mutants(format, self.directory, self.seed, first)
        for index, files, is_damage in mutants:
            if index == self.count or len(failures) >= _MAX_FAILURES:
                break
            reset_peak()
            before = memory("VmRSS")
            self.notes.write(index, opened, refused, 1)
            for name, content in files.items():
                (self.directory / name).write_bytes(content)
            signal.setitimer(signal.ITIMER_PROF, MAX_SECONDS)
            problem = None
            try:
                found = format.open(self.directory)
                opened += 1
                if is_damage:
                    for name in found.keys() & expected.keys():
                        if not np.array_equal(found[name], expected[name]):
                            problem = f"opened with other numbers in {name}"
            except UserError:
                refused += 1
            except BaseException:
                problem = traceback.format_exc(limit=-6)
            signal.setitimer(signal.ITIMER_PROF, 0)
            taken = memory("VmHWM") - before
            if problem is None and taken > MAX_RESIDENT:
                problem = f"took {taken // MEGABYTE} MB"
            if problem is not None:
                failures.append(f"{self.name} mutant {index} of {sorted(files)}: {problem}")
                self._report.write_text(json.dumps(failures))
            self._restore(files)
            self.notes.write(index + 1, opened, refused, 0)
        os._exit(0)

    def _restore(self, names):
        for damaged in self.directory.glob("damaged-*"):  # a training checkpoint that was set aside
            os.replace(damaged, self.directory / damaged.name.removeprefix("damaged-"))
        for name in names:
            (self.directory / name).write_bytes(self._originals[name])


def write_samples(root: pathlib.Path, names: list[str]) -> None:
    """Writes the samples, in a child: that starts TensorFlow's threads, which forks do not have."""
    child = os.fork()
    if child == 0:
        try:
            from tests.fuzz.formats import FORMATS

            for name in names:
                FORMATS[name].write(root / name)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    if os.waitpid(child, 0)[1] != 0:
        raise RuntimeError("the samples could not be written")


def run(
    root: pathlib.Path, names: list[str], seed: int, count: int | None, processes: int
) -> list[Job]:
    """Opens `count` mutants of each format, `processes` formats at a time."""
    from tests.fuzz.formats import FORMATS

    write_samples(root, names)
    jobs = [Job(name, root / name, seed, count or FORMATS[name].many) for name in names]
    waiting, running = list(jobs), {}
    while waiting or running:
        while waiting and len(running) < processes:
            job = waiting.pop(0)
            running[job.start_child()] = job
        child, status = os.wait()
        job = running.pop(child)
        job.child_ended(status)
        if not job.is_done:
            waiting.insert(0, job)
    return jobs


def open_one(root: pathlib.Path, name: str, seed: int, index: int) -> None:
    """Opens one mutant in this process, for looking at it; leaves it in the directory."""
    from tests.fuzz.formats import FORMATS

    write_samples(root, [name])
    _, files, _ = next(numbered_mutants(FORMATS[name], root / name, seed, index))
    for file, content in files.items():
        (root / name / file).write_bytes(content)
    FORMATS[name].open(root / name)
    print("opened")


def main(arguments: list[str] | None = None) -> None:
    """The program; `arguments` are those of the command line by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--count", type=int, help="by default, as many as `make test-full`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--formats", nargs="*")
    parser.add_argument("--only", type=int)
    arguments = parser.parse_args(arguments)
    # One heap for all threads: more of them reserve addresses, and those are limited.
    ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

    import keras  # noqa: F401  what every child needs is imported once
    import tensorflow  # noqa: F401

    import bert_tf  # noqa: F401
    from tests.fuzz.formats import FORMATS

    names = arguments.formats or list(FORMATS)
    if arguments.only is not None:
        open_one(arguments.directory, names[0], arguments.seed, arguments.only)
        return
    jobs = run(arguments.directory, names, arguments.seed, arguments.count, arguments.processes)
    for job in jobs:
        done, opened, refused, _ = job.notes.read()
        print(
            json.dumps(
                {
                    "format": job.name,
                    "mutants": done,
                    "opened": opened,
                    "refused": refused,
                    "seconds": round(job.seconds, 1),
                    "failures": job.failures,
                }
            ),
            flush=True,
        )
    sys.exit(any(job.failures for job in jobs))


if __name__ == "__main__":
    main()
