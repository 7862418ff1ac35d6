"""Runs programs side by side, once each, and notes the processor time that they took."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable

from bert_tf.errors import UserError
from bert_tf.tools.common.result_files import write_json

_CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
_SHOWN_LINES = 15  # of the output of a failed run


@dataclasses.dataclass(frozen=True)
class Run:
    """A program and its flags, as a value: True is `--name`, a list is joined by commas.

    `program` is the name of its module.
    """

    program: str
    flags: dict

    def arguments(self) -> list[str]:
        parts = []
        for name, value in self.flags.items():
            parts.append(f"--{name}" if value is True else f"--{name}={value}")
        return ["-m", self.program, *parts]

    @property
    def directory(self) -> str:
        """Where the program writes."""
        path = self.flags.get("output_dir") or os.path.dirname(self.flags["output_file"])
        return str(path)

    @property
    def _record(self):
        return self._file(".run.json")

    def _file(self, ending):
        return os.path.join(self.directory, self.program.rpartition(".")[2] + ending)

    def record(self) -> dict | None:
        """Returns the `arguments` and `core_minutes` of the finished run, or None."""
        try:
            with open(self._record, encoding="utf-8") as file:
                record = json.load(file)
        except FileNotFoundError:
            return None
        return record if record["arguments"] == self.arguments() else None

    def perform(self) -> None:
        """Runs the program with one thread, unless it has finished before with the same flags."""
        if self.record() is not None:
            return
        os.makedirs(self.directory, exist_ok=True)
        # An interrupted training begins again, so that its time is that of all steps.
        shutil.rmtree(os.path.join(self.directory, "checkpoints"), ignore_errors=True)
        log = self._file(".log")
        threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        environment = {**os.environ, **threads, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, *self.arguments()]
        start = time.monotonic()
        with open(log, "wb") as output:
            process = subprocess.Popen(
                command, cwd=_CHECKOUT, env=environment, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
        status = os.waitstatus_to_exitcode(status)
        if status:
            with open(log, encoding="utf-8", errors="replace") as file:
                last = "".join(file.readlines()[-_SHOWN_LINES:])
            raise UserError(f"{' '.join(command)} must succeed. Received: status {status}\n{last}")
        minutes = {
            "core_minutes": (usage.ru_utime + usage.ru_stime) / 60,
            "minutes": (time.monotonic() - start) / 60,
        }
        write_json(self._record, {"arguments": self.arguments(), **minutes}, indent=2)


def perform_all(runs: Iterable[Run], processes: int, report) -> None:
    """Performs runs, some at once. The first failure ends the others that have not begun."""
    runs = list(runs)
    with concurrent.futures.ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(run.perform) for run in runs]
        try:
            for future in concurrent.futures.as_completed(futures):
                future.result()
                report()
        finally:
            pool.shutdown(cancel_futures=True)
