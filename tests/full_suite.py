"""Runs everything, part after part, and writes one summary: `make test-full`.

    python -m tests.full_suite --summary .cache/test-full.md [--parts tests fuzzing …]

A part that fails does not keep the others from running; the exit status says whether any did. The
summary is written again after every part.
"""

import argparse
import collections
import dataclasses
import datetime
import importlib.metadata
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

from tests.conftest import REPOSITORY

COUNTED = "--junitxml=RESULTS"  # RESULTS is replaced by the file that pytest shall write
PYTEST = [sys.executable, "-m", "pytest", "-q", COUNTED]
IN_PARALLEL = ["-n2", "--dist=loadfile", "--no-loadscope-reorder"]
NATIVE = {"BERT_TF_OPS": "native", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
KERNELS = "//custom_ops/kernels/..."
OPS = ["tests/ops", "tests/conformance/test_ops.py"]
OTHER_TENSORFLOW = "2.19"
# Of the folders of tests that run as parts of their own, with all processes to themselves.
APART = ("tests/fuzz", "tests/notebooks", "tests/quality")
PACKAGES = ("tensorflow", "keras", "tensorflow-text", "keras-nlp", "numpy", "torch", "transformers")


@dataclasses.dataclass(frozen=True)
class Part:
    """A command of the suite.

    Attributes:
        name: What the summary calls it.
        command: What runs. Where it holds COUNTED, its tests are counted.
        environment: Variables in addition to this process's.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Result:
    """What became of a part: its exit status, minutes and, of pytest, the counts."""

    part: Part
    status: int
    minutes: float
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    skips: collections.Counter = dataclasses.field(default_factory=collections.Counter)


def parts() -> list[Part]:
    """Everything, the quickest to fail first."""
    bazel = shutil.which("bazel") or shutil.which("bazelisk") or "bazel"
    everything = ["tests", "-m", "", *(f"--ignore={folder}" for folder in APART)]
    # The fuzzed files are read by the same code under every TensorFlow.
    other_tensorflow = [
        *("make", "test", f"TF_VERSION={OTHER_TENSORFLOW}", "LONGEST_TEST=60"),
        f"PYTEST_ARGS=--ignore=tests/fuzz {COUNTED}",
    ]
    found = [
        Part("lint", ["make", "lint"]),
        Part("sanitizers: asan, ubsan", [bazel, "test", "--config=asan", KERNELS]),
        Part("sanitizers: tsan", [bazel, "test", "--config=tsan", KERNELS]),
    ]
    for isa in ("portable", "avx2", "avx512"):
        test = [bazel, "test", f"--test_env=BERT_TF_ISA={isa}", KERNELS]
        found += [
            Part(f"kernels: {isa}", test),
            Part(f"ops: {isa}", [*PYTEST, *IN_PARALLEL, *OPS], {**NATIVE, "BERT_TF_ISA": isa}),
        ]
    return [
        *found,
        Part("kernels: CUDA, emulated", [bazel, "test", "//custom_ops/kernels:cuda_kernels_test"]),
        Part("all other C++ tests", [bazel, "test", "//custom_ops/..."]),
        Part("tests", [*PYTEST, *IN_PARALLEL, *everything], NATIVE),
        Part("fuzzing", [*PYTEST, "tests/fuzz", "-m", ""], NATIVE),
        Part("notebooks", [*PYTEST, "tests/notebooks", "-m", ""], NATIVE),
        Part("quality", [*PYTEST, "tests/quality", "-m", ""], NATIVE),
        Part(f"TensorFlow {OTHER_TENSORFLOW}", other_tensorflow),
        Part("the ops of the default TensorFlow again", ["make", "ops"]),
    ]


def run(part: Part) -> Result:
    """Runs a part; what it prints is shown."""
    print(f"\n=== {part.name}: {' '.join(part.command)}", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        results = pathlib.Path(directory) / "results.xml"
        command = [word.replace("RESULTS", str(results)) for word in part.command]
        start = time.monotonic()
        environment = {**os.environ, **part.environment}
        status = subprocess.run(command, cwd=REPOSITORY, env=environment).returncode
        result = Result(part, status, (time.monotonic() - start) / 60)
        if results.exists():
            _count(result, results)
    return result


def _count(result, results):
    for case in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        kinds = {child.tag: child for child in case}
        if "skipped" in kinds:
            result.counts["skipped"] += 1
            result.skips[kinds["skipped"].get("message", "")] += 1
        elif kinds.keys() & {"failure", "error"}:
            result.counts["failed"] += 1
        else:
            result.counts["passed"] += 1


def summary(machine: list[str], results: list[Result]) -> str:
    """What the run printed, as Markdown; `machine` says where."""
    minutes = sum(result.minutes for result in results)
    lines = [
        "# What `make test-full` printed",
        "",
        *machine,
        "",
        f"All of it took {minutes:.0f} minutes.",
        "",
        "| part | result | tests | minutes |",
        "|---|---|---|---|",
    ]
    for result in results:
        counts = ", ".join(f"{count} {kind}" for kind, count in result.counts.items())
        state = "FAILED" if result.status else "passed"
        lines.append(f"| {result.part.name} | {state} | {counts} | {result.minutes:.1f} |")
    skips = sum((result.skips for result in results), collections.Counter())
    lines += ["", "Skipped:" if skips else "Nothing was skipped.", ""]
    lines += [f"- {count}: {reason}" for reason, count in skips.most_common()]
    return "\n".join(lines).rstrip() + "\n"


def _machine():
    """The day, the commit, processors and versions."""
    command = ["git", "describe", "--always", "--dirty"]
    commit = "no git"
    if shutil.which("git"):
        described = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
        commit = described.stdout.strip()
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if "model name" in line), "")
    return [
        f"{datetime.date.today()}, commit {commit}.",
        f"{os.cpu_count()} processors ({model}), {platform.platform()}.",
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
    ]


def main() -> None:
    names = [part.name for part in parts()]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--summary", type=pathlib.Path, required=True, help="the file to write")
    parser.add_argument("--parts", nargs="+", choices=names, metavar="PART", default=names)
    arguments = parser.parse_args()
    machine, results = _machine(), []
    arguments.summary.parent.mkdir(parents=True, exist_ok=True)
    for part in parts():
        if part.name in arguments.parts:
            results.append(run(part))
            text = summary(machine, results)
            arguments.summary.write_text(text, encoding="utf-8")
    print(f"\n{text}\n(in {arguments.summary})")
    sys.exit(any(result.status for result in results))


if __name__ == "__main__":
    main()
