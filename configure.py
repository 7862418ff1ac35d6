"""Writes .bazelrc.user: what Bazel must know about this machine to build the custom ops.

    python configure.py        # for the TensorFlow of this interpreter; or `make configure`

That is the Python whose TensorFlow the ops are built for and, where Bazel is Debian's
bazel-bootstrap (which reaches no network), the rule folders that Debian's packages install.
setup.py uses `bazel_flags` too, so that `pip install` needs no configuring.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# Debian's packages bazel-rules-java and bazel-rules-proto.
DEBIAN_RULES = Path("/usr/share/bazel/rules")
DEBIAN_BAZEL = Path("/usr/share/doc/bazel-bootstrap")
TENSORFLOW_DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-tpu", "tensorflow-rocm")
# The copies of the kernels for x86-64, the best one last, with the flags of /proc/cpuinfo that each
# needs, as custom_ops/kernels/base/isa.cc asks for them.
X86_64_SETS = {
    "portable": set(),
    "avx2": {"avx2", "fma"},
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
}


def find_bazel() -> str | None:
    """The path of `bazel`, or else of `bazelisk`, or None."""
    return shutil.which("bazel") or shutil.which("bazelisk")


def find_tensorflow() -> tuple[str, Path]:
    """The version and the folder of this interpreter's TensorFlow, without importing it.

    Raises:
        RuntimeError: no TensorFlow is installed here.
    """
    spec = importlib.util.find_spec("tensorflow")
    if spec is not None and spec.submodule_search_locations:
        for name in TENSORFLOW_DISTRIBUTIONS:
            try:
                version = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
            return version, Path(next(iter(spec.submodule_search_locations))).resolve()
    raise RuntimeError(
        "Expected an interpreter with TensorFlow installed. "
        f"Received: sys.executable={sys.executable!r}. "
        "Run `make venv` first, or `pip install tensorflow` there."
    )


def has_xla_headers() -> bool:
    """Whether this interpreter's TensorFlow ships the headers that its XLA lowerings need.

    TensorFlow 2.19's wheel does not.

    Raises:
        RuntimeError: no TensorFlow is installed here.
    """
    _, folder = find_tensorflow()
    return (folder / "include" / "xla" / "ffi" / "api" / "ffi.h").is_file()


def processor_flags(cpu_info: str | None = None) -> set[str]:
    """Returns the flags of an x86-64 processor.

    Args:
        cpu_info: The text of /proc/cpuinfo. None: that of this machine.
    """
    if cpu_info is None:
        cpu_info = Path("/proc/cpuinfo").read_text()
    line = next((line for line in cpu_info.splitlines() if line.startswith("flags")), ":")
    return set(line.split(":")[1].split())


def best_instruction_set(cpu_info: str | None = None, machine: str | None = None) -> str:
    """Returns which copy of the kernels this machine runs: "portable", "avx2", "avx512" or "neon".

    Args:
        cpu_info: The text of /proc/cpuinfo. None: that of this machine.
        machine: As `platform.machine()`. None: that of this machine.
    """
    machine = machine or platform.machine()
    if machine != "x86_64":
        return "neon" if machine == "aarch64" else "portable"
    flags = processor_flags(cpu_info)
    return [name for name, needed in X86_64_SETS.items() if needed <= flags][-1]


def bazel_flags(
    python_path: str | None = None, foreign_tensorflow: Path | None = None
) -> list[str]:
    """The flags that `bazel build` needs on this machine, for this interpreter's TensorFlow.

    Args:
        python_path: the PYTHONPATH that finds TensorFlow, where the interpreter alone does not
            (pip's isolated builds).
        foreign_tensorflow: the folder of the same TensorFlow for another processor, to build for
            that one.

    Raises:
        RuntimeError: no TensorFlow is installed here, or Debian's Bazel lacks its rule packages.
    """
    version, folder = find_tensorflow()
    flags = [
        f"--repo_env=BERT_TF_PYTHON={sys.executable}",
        f"--repo_env=BERT_TF_PYTHONPATH={python_path or ''}",
        f"--repo_env=BERT_TF_TENSORFLOW_VERSION={version}",
        f"--repo_env=BERT_TF_TENSORFLOW_PATH={folder}",
        f"--repo_env=BERT_TF_FOREIGN_TENSORFLOW={foreign_tensorflow or ''}",
    ]
    if DEBIAN_BAZEL.is_dir() and (find_bazel() or "").startswith(("/usr/bin/", "/bin/")):
        for name in ("java", "proto"):
            if not (DEBIAN_RULES / name).is_dir():
                raise RuntimeError(
                    f"Expected the rules of Debian's Bazel in {DEBIAN_RULES / name}. "
                    f"Run `apt-get install bazel-rules-{name}`."
                )
            flags.append(f"--override_repository=rules_{name}={DEBIAN_RULES / name}")
        coverage = ROOT / "third_party" / "remote_coverage_tools"
        flags.append(f"--override_repository=remote_coverage_tools={coverage}")
    return flags


def write_bazelrc_user(path: Path = ROOT / ".bazelrc.user") -> bool:
    """Writes `path`, whole or not at all; returns whether it changed."""
    lines = [
        "# Written by configure.py (`make configure`) for this machine; ignored by git.",
        # `build` options hold for `test` and `run` too, but not for `query` and `fetch`.
        *(f"{command} {_quoted(flag)}" for command in ("build", "query") for flag in bazel_flags()),
    ]
    text = "\n".join(lines) + "\n"
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    unfinished = path.with_name(path.name + f".{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)
    return True


def _quoted(flag: str) -> str:
    """A flag as .bazelrc wants it: quoted where it has a space."""
    return f'"{flag}"' if " " in flag else flag


if __name__ == "__main__":
    try:
        changed = write_bazelrc_user()
    except RuntimeError as error:
        sys.exit(f"configure.py: {error}")
    print(f".bazelrc.user {'written' if changed else 'is up to date'} for {sys.executable}")
