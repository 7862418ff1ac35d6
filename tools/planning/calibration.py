"""The rates of this machine: what a calibration file holds.

A setup is a number of processes on the machine, the workers of a run, with some threads each. They
share the memory's bandwidth and the caches, so every setup has rates of its own.
"""

import dataclasses
import os
from typing import Any

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import integer, list_of, number, object_of, text
from bert_tf.errors import ConfigError, UserError
from bert_tf.tools.common import result_files

from .communication import Link
from .estimate import Cluster
from .rates import Rates
from .work import PASSES

_AT_LEAST_0 = number("a number of at least 0", lambda value: value >= 0)
_POSITIVE = number("a positive number", lambda value: value > 0)
_LINK = {"bandwidth": _POSITIVE, "latency": _AT_LEAST_0}
_RATES = {
    **{field.name: _AT_LEAST_0 for field in dataclasses.fields(Rates)},
    "efficiency": _POSITIVE,
    "bytes_per_second": object_of(dict.fromkeys(PASSES, _POSITIVE), only=True),
}
_SETUP = object_of(
    {
        "workers": integer(1),
        "threads": integer(1),
        "rates": object_of(_RATES, only=True),
        "link": object_of(_LINK, only=True),
    },
    only=True,
)
_FILE = object_of(
    {
        "processor": text(),
        "cores": integer(1),
        "memory": integer(1, 2**60),
        "setups": list_of(_SETUP, 1),
    },
    only=True,
)
# Of one worker, which has nobody to exchange data with: no formula uses these numbers.
NO_LINK = Link(1.0, 0.0)


@dataclasses.dataclass(frozen=True)
class Setup:
    """Processes and threads, the rates of a process, and the link between two of them."""

    workers: int
    threads: int
    rates: Rates
    link: Link = NO_LINK


@dataclasses.dataclass(frozen=True)
class Calibration:
    """What was measured on a machine.

    Args:
        processor: Its name.
        cores: Its number of cores.
        memory: Bytes of its memory.
        setups: The setups that were measured.
    """

    processor: str
    cores: int
    memory: int
    setups: tuple[Setup, ...]

    def setup(self, workers: int, threads: int) -> Setup:
        """Returns the setup with as many workers and threads.

        Raises:
            UserError: If it was not measured.
        """
        for setup in self.setups:
            if (setup.workers, setup.threads) == (workers, threads):
                return setup
        known = ", ".join(f"{one.workers} × {one.threads}" for one in self.setups)
        raise UserError(
            "The workers of a machine × their --threads must be one of the setups in "
            f"--calibration_file: {known}. Received: {workers} × {threads}"
        )

    def cluster(self, num_devices: int, workers: int, threads: int, outer: Link) -> Cluster:
        """Returns machines like this one; a device is a worker.

        Args:
            num_devices: Number of workers.
            workers: Of them, those of one machine.
            threads: Threads of each worker.
            outer: The link between machines.
        """
        setup = self.setup(workers, threads)
        memory = self.memory / workers
        return Cluster(setup.rates, num_devices, workers, memory, setup.link, outer)


def read(path: str) -> Calibration:
    """Reads a calibration file.

    Raises:
        ConfigError: If it is missing or damaged.
    """
    if not os.path.isfile(path):
        raise ConfigError(
            "--calibration_file must be a file that --calibrate has written. Received: "
            f"--calibration_file={path}"
        )
    values = read_json(path, _FILE, ConfigError)
    setups = [
        {**setup, "rates": Rates(**setup["rates"]), "link": Link(**setup["link"])}
        for setup in values["setups"]
    ]
    return Calibration(**{**values, "setups": tuple(Setup(**setup) for setup in setups)})


def write(calibration: Calibration, path: str) -> None:
    """Writes a calibration file, atomically."""
    result_files.write_json(path, as_json(calibration), indent=2)


def as_json(calibration: Calibration) -> dict[str, Any]:
    return dataclasses.asdict(calibration)
