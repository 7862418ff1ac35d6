"""Mutated files of every format: an error of ours, or a model; within 200 MB and 5 s each.

Damage to bytes that a checksum protects must not change a number either. `runner.py` opens the
mutants in processes of their own, so a crash is a failure with the mutant's number.
"""

import json
import os
import tempfile

import pytest

from tests.fuzz import runner
from tests.fuzz.formats import FORMATS
from tests.training import processes

FEW = 10  # of each format; in the full suite, as many as the format says


@pytest.fixture(scope="module")
def results(request, tmp_path_factory):
    """For a number of mutants or None, what became of them in the wanted formats, by name."""
    found, logs = {}, tmp_path_factory.mktemp("fuzz")

    def run(count):
        if count not in found:
            names = dict.fromkeys(
                item.callspec.params["format"]
                for item in request.session.items
                if item.module is request.module
            )
            # In memory: each mutant is written and put right again.
            memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            with tempfile.TemporaryDirectory(dir=memory) as directory:
                found[count] = _run(names, count, directory, logs)
        return found[count]

    return run


def _run(names, count, directory, logs):
    output, errors = logs / f"{count}.output", logs / f"{count}.errors"
    numbers = [] if count is None else [f"--count={count}"]
    arguments = [directory, *numbers, "--formats", *names]
    process = processes.start(runner.main, output, errors=errors, arguments=arguments)
    process.wait(timeout=None)
    lines = [line for line in process.text().splitlines() if line.startswith("{")]
    assert len(lines) == len(names), process.text()[-1000:] + errors.read_text()[-3000:]
    return {values["format"]: values for values in map(json.loads, lines)}


@pytest.mark.parametrize("count", [FEW, pytest.param(None, marks=pytest.mark.full, id="many")])
@pytest.mark.parametrize("format", list(FORMATS))
def test_mutants(format, count, results):
    result = results(count)[format]
    print({key: value for key, value in result.items() if key != "failures"})
    assert not result["failures"], "\n\n".join(result["failures"])
    many = FORMATS[format].many
    assert result["mutants"] == (count or many)
    # Neither are the mutants so wild that all are refused, nor so tame that all are taken.
    assert result["opened"] > 0 or count  # of a few all may be refused
    assert result["refused"] > (count or many) // 4
