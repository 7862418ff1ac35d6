"""Builds the custom ops with Bazel for this interpreter's TensorFlow.

    python custom_ops/build.py bert_tf/ops --for_this_machine  # what `make ops` does
    python custom_ops/build.py FOLDER                          # everything: `make ops ALL=1`
    python custom_ops/build.py FOLDER --arch=aarch64           # for another processor

The kernels know no TensorFlow: they are one shared object. The OpKernels and what XLA needs fit one
minor version of TensorFlow: they are put into a folder with its name, so one bert_tf/ops can hold
them for several versions:

    _bert_tf_kernels.so
    tensorflow_2.21/_bert_tf_ops.so, _bert_tf_gpu_ops.so, _build_info.json
    tensorflow_2.21/_bert_tf_xla.so, _bert_tf_gpu_xla.so

Everything means the kernels for every instruction set, and XLA's lowerings, which take longer to
compile than all else and serve only `jit_compile=True`. `--for_this_machine` leaves out what this
machine does not run, and the lowerings; a folder that has everything gets everything again.

No CUDA toolkit is needed: NVRTC compiles the GPU kernels where they run.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
import configure  # noqa: E402
from custom_ops.foreign_tensorflow import unpack_tensorflow  # noqa: E402

KERNELS = ("kernels:_bert_tf_kernels.so",)
OPS = ("ops:_bert_tf_ops.so", "ops:_bert_tf_gpu_ops.so", "ops:_build_info.json")
XLA = ("xla:_bert_tf_xla.so", "xla:_bert_tf_gpu_xla.so")


def version_folder(tensorflow_version: str) -> str:
    """The folder of the objects for a TensorFlow: "tensorflow_2.21" for "2.21.0"."""
    return "tensorflow_" + ".".join(tensorflow_version.split(".")[:2])


def build(
    target: Path,
    python_path: str | None = None,
    arch: str | None = None,
    for_this_machine: bool = False,
) -> None:
    """Builds the ops and puts them into the folder `target`.

    Args:
        target: bert_tf/ops of a checkout or of a package that is being built.
        python_path: the PYTHONPATH that finds TensorFlow, where the interpreter alone does not.
        arch: another processor to build for: "aarch64". .bazelrc must have a configuration of that
            name.
        for_this_machine: whether to build only the best instruction set of this machine, without
            XLA's lowerings, unless the folder has lowerings.

    Raises:
        RuntimeError: no TensorFlow is installed here.
        subprocess.CalledProcessError: Bazel has failed, and has printed why.
    """
    bazel = configure.find_bazel()
    foreign = None
    if arch is not None and arch != platform.machine():
        version, _ = configure.find_tensorflow()
        foreign = unpack_tensorflow(version, arch, ROOT / ".cache" / "tensorflow")
    flags = configure.bazel_flags(python_path, foreign)
    if foreign is not None:
        flags.append(f"--config={arch}")
    if for_this_machine and not any(target.glob("tensorflow_*/_bert_tf_xla.so")):
        targets = _targets(with_xla=False)
        flags.append(f"--define=isa={configure.best_instruction_set()}")
    else:
        targets = _targets(with_xla=configure.has_xla_headers())
    if not configure.has_xla_headers():
        print("This TensorFlow ships no headers of XLA: jit_compile will take plain TensorFlow.")
    _run([bazel, "build", *flags, *(f"//custom_ops/{label}" for _, label in targets)])
    answer = _run([bazel, "info", *flags, "bazel-bin"], stdout=subprocess.PIPE, text=True)
    built = Path(answer.stdout.strip()) / "custom_ops"
    folder = target / version_folder(configure.find_tensorflow()[0])
    folder.mkdir(parents=True, exist_ok=True)
    for file in set(folder.iterdir()) - {target / path for path, _ in targets}:
        file.unlink()  # of an earlier build
    for path, label in targets:
        _replace(built / label.replace(":", "/"), target / path)


def _targets(with_xla: bool) -> list[tuple[str, str]]:
    """Each file relative to the target folder, and its Bazel label below //custom_ops/."""
    labels = OPS + (XLA if with_xla else ())
    folder = version_folder(configure.find_tensorflow()[0])
    return [
        *((label.split(":")[1], label) for label in KERNELS),
        *((f"{folder}/{label.split(':')[1]}", label) for label in labels),
    ]


def _run(command: list[str], **options) -> subprocess.CompletedProcess:
    print("running", " ".join(command), flush=True)
    return subprocess.run(command, cwd=ROOT, check=True, **options)


def _replace(source: Path, target: Path) -> None:
    """Moves a copy into place in one step: a running process keeps the object it has loaded."""
    unfinished = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copyfile(source, unfinished)
    os.replace(unfinished, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", type=Path, help="the folder to build into")
    parser.add_argument("--arch", choices=("x86_64", "aarch64"), help="default: this machine's")
    parser.add_argument(
        "--for_this_machine",
        action="store_true",
        help="only the best instruction set of this machine, without XLA's lowerings",
    )
    arguments = parser.parse_args()
    try:
        build(arguments.target, arch=arguments.arch, for_this_machine=arguments.for_this_machine)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"custom_ops/build.py: {error}")


if __name__ == "__main__":
    main()
