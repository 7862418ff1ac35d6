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
from tests.instruction_sets import other_instruction_sets

COUNTED = "--junitxml=RESULTS"  # RESULTS is replaced by the file that pytest shall write
PYTEST = [sys.executable, "-m", "pytest", "-q", COUNTED]
IN_PARALLEL = ["-n2", "--dist=loadfile", "--no-loadscope-reorder"]
NATIVE = {"BERT_TF_OPS": "native", "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}
KERNELS = "//custom_ops/kernels/..."
# The oldest one that is supported runs what `make test` has; the one between, what depends on it
# most.
OTHER_TENSORFLOWS = {
    "2.19": "--ignore=tests/fuzz",  # the same code reads the files under every TensorFlow
    "2.20": "tests/ops tests/conformance tests/layers tests/serving",
}
# Of the folders of tests that run as parts of their own, with all processes to themselves.
APART = ("tests/fuzz", "tests/notebooks", "tests/quality")
# Debian's packages g++-aarch64-linux-gnu and qemu-user.
EMULATOR = "qemu-aarch64"
CROSS_TOOLS = ("aarch64-linux-gnu-g++", EMULATOR)
# The processors that are emulated, what the kernels must find there (docs/arm.md), and the tests:
# where there are fewer instructions, those of the kernels that choose among them.
BYTE_KERNELS = [
    "//custom_ops/kernels:isa_test",
    "//custom_ops/kernels:quantized_attention_test",
    "//custom_ops/kernels:quantized_dense_test",
]
ARM_PROCESSORS = [
    ("cortex-a53", "none", BYTE_KERNELS),
    ("neoverse-n1", "dotprod", BYTE_KERNELS),
    ("max", "i8mm", [KERNELS]),
]
EMULATED_CUDA_KERNELS = [  # manual: they take minutes
    "//custom_ops/kernels:cuda_attention_test",
    "//custom_ops/kernels:cuda_kernels_test",
]
PACKAGES = ("tensorflow", "keras", "tensorflow-text", "keras-nlp", "numpy", "torch", "transformers")


@dataclasses.dataclass(frozen=True)
class Part:
    """A command of the suite.

    Attributes:
        name: What the summary calls it.
        command: What runs. Where it holds COUNTED, its tests are counted.
        environment: Variables in addition to this process's.
        programs: What must be on PATH; the part is skipped without one of them.
    """

    name: str
    command: list[str]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    programs: tuple[str, ...] = ()


@dataclasses.dataclass
class Result:
    """What became of a part: its exit status, minutes, the counts of pytest, and whether it ran."""

    part: Part
    status: int
    minutes: float
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    skips: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    ran: bool = True


def parts() -> list[Part]:
    """Everything, the quickest to fail first."""
    bazel = shutil.which("bazel") or shutil.which("bazelisk") or "bazel"
    everything = ["tests", "-m", "", *(f"--ignore={folder}" for folder in APART)]
    test_everything = [*PYTEST, *IN_PARALLEL, *everything]
    found = [
        Part("lint", ["make", "lint"]),
        Part("sanitizers: asan, ubsan", [bazel, "test", "--config=asan", KERNELS]),
        Part("sanitizers: tsan", [bazel, "test", "--config=tsan", KERNELS]),
    ]
    for isa in other_instruction_sets():
        test = [bazel, "test", f"--test_env=BERT_TF_ISA={isa}", KERNELS]
        found.append(Part(f"kernels: {isa}", test))
    for processor, instructions, tests in ARM_PROCESSORS:
        emulator = f"{EMULATOR} -L /usr/aarch64-linux-gnu -cpu {processor}"
        expected = f"--test_env=BERT_TF_EXPECTED_ISA=neon {instructions}"
        test = [bazel, "test", "--config=aarch64", f"--run_under={emulator}", expected, *tests]
        found.append(Part(f"kernels: aarch64, emulated {processor}", test, programs=CROSS_TOOLS))
    return [
        *found,
        Part("kernels: CUDA, emulated", [bazel, "test", *EMULATED_CUDA_KERNELS]),
        Part("all other C++ tests", [bazel, "test", "//custom_ops/..."]),
        Part("tests", test_everything, NATIVE),
        *(
            Part(f"tests: {isa}", test_everything, NATIVE | {"BERT_TF_ISA": isa})
            for isa in other_instruction_sets()
        ),
        Part("fuzzing", [*PYTEST, "tests/fuzz", "-m", ""], NATIVE),
        Part("notebooks", [*PYTEST, "tests/notebooks", "-m", ""], NATIVE),
        Part("quality", [*PYTEST, "tests/quality", "-m", ""], NATIVE),
        *(
            Part(
                f"TensorFlow {version}",
                [
                    *("make", "test", f"TF_VERSION={version}", "INSTRUCTION_SETS="),
                    f"PYTEST_ARGS={arguments} {COUNTED}",
                ],
            )
            for version, arguments in OTHER_TENSORFLOWS.items()
        ),
    ]


def run(part: Part) -> Result:
    """Runs a part; what it prints is shown. Without one of its programs, it is skipped."""
    missing = [program for program in part.programs if not shutil.which(program)]
    if missing:
        reason = f"{part.name}: not on PATH: {', '.join(missing)}"
        print(f"\n=== skipped: {reason}", flush=True)
        return Result(part, 0, 0.0, skips=collections.Counter([reason]), ran=False)
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
        state = "FAILED" if result.status else "passed" if result.ran else "skipped"
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
