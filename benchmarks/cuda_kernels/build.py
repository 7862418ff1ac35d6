r"""Compiles the CUDA kernels with nvcc, without Bazel, and prints their registers as a table.

    python benchmarks/cuda_kernels/build.py
    python benchmarks/cuda_kernels/build.py --architectures sm_80 sm_90 --source=fused_bias_gelu

Needs nvcc 12 or 13, in $CUDA_HOME/bin or on PATH, but no GPU. The exit status is 1 if a kernel
spills registers or does not compile, and 2 if there is no nvcc. This tool does not build the
library that TensorFlow loads; Bazel does: `make ops CUDA_HOME=...`.
"""

import argparse
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = {
    path.name.removesuffix(".cu.cc"): str(path)
    for path in sorted(ROOT.glob("custom_ops/kernels/*/*.cu.cc"))
}
# The same flags are in custom_ops/kernels/BUILD.
NVCC_FLAGS = ("-x", "cu", "-std=c++17", "-O3", "--extended-lambda", "--expt-relaxed-constexpr")
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")

# The output of `-Xptxas -v` for one kernel.
_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)' for '(?P<architecture>\S+)'.*?"
    r"(?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)
# What a demangled name is shown without.
_SCOPES = re.compile(r"\(anonymous namespace\)::|bert_tf::|cuda::|void ")


class CompilationFailed(Exception):
    """nvcc failed; the text is its messages."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What ptxas reports for one kernel."""

    name: str  # with its template arguments, such as `ForwardKernel<BFloat16, 64, true>`
    architecture: str
    registers: int  # per thread
    spill_bytes: int  # per thread, to and from local memory


def find_program(name: str) -> str | None:
    """Returns the path of a program such as nvcc in $CUDA_HOME/bin or on PATH, or None."""
    home = os.environ.get("CUDA_HOME")
    return (home and shutil.which(name, path=f"{home}/bin")) or shutil.which(name)


def build(nvcc: str, architecture: str, library: pathlib.Path) -> None:
    """Compiles all kernels into one shared library.

    `architecture` is a value of nvcc's -arch, such as `sm_90`.
    """
    toolkit = pathlib.Path(nvcc).resolve().parent.parent
    folders = [f"-L{toolkit / name}" for name in ("lib64", "lib") if (toolkit / name).is_dir()]
    flags = ["-Xcompiler", "-fPIC", "-shared", "-cudart", "static", "--threads=0", *folders]
    command = _command(nvcc, architecture, *flags, *SOURCES.values(), "-o", str(library))
    subprocess.run(command, check=True)


def compile_kernels(
    nvcc: str, name: str, architecture: str, directory: pathlib.Path
) -> list[Kernel]:
    """Compiles one of `SOURCES`, with warnings as errors, and returns what ptxas reports.

    The machine code remains in `directory` (`cubin_of`).

    Raises:
        CompilationFailed: If nvcc fails; with the end of its messages.
    """
    flags = ["-Xptxas", "-v", "-Werror", "all-warnings", "--keep", f"--keep-dir={directory}", "-c"]
    target = str(directory / f"{name}_{architecture}.o")
    command = _command(nvcc, architecture, *flags, SOURCES[name], "-o", target)
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise CompilationFailed(result.stderr[-4000:])
    return read_report(result.stderr)


def cubin_of(name: str, directory: pathlib.Path) -> pathlib.Path:
    """Returns the file that `compile_kernels` leaves, with the machine code of a source."""
    (cubin,) = directory.glob(f"{name}.*.cubin")
    return cubin


def _command(nvcc: str, architecture: str, *arguments: str) -> list[str]:
    return [nvcc, *NVCC_FLAGS, f"-I{ROOT}", f"-arch={architecture}", *arguments]


def read_report(text: str) -> list[Kernel]:
    """Parses the output of `nvcc -Xptxas -v`."""
    entries = list(_ENTRY.finditer(text))
    names = demangled([entry["name"] for entry in entries])
    return [
        Kernel(
            name,
            entry["architecture"],
            int(entry["registers"]),
            int(entry["spill_stores"]) + int(entry["spill_loads"]),
        )
        for entry, name in zip(entries, names)
    ]


def demangled(names: list[str]) -> list[str]:
    """Demangles C++ names with c++filt of binutils, if it is installed."""
    if names and shutil.which("c++filt"):
        answer = subprocess.run(
            ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
        )
        names = answer.stdout.splitlines()
    return [_SCOPES.sub("", name).split("(")[0] for name in names]


def resource_table(kernels: list[Kernel]) -> str:
    """Formats the registers per thread as Markdown; spilled bytes follow a plus sign."""
    architectures = list(dict.fromkeys(kernel.architecture for kernel in kernels))
    cells: dict[str, dict[str, str]] = {}
    for kernel in kernels:
        spills = f" + {kernel.spill_bytes} bytes" if kernel.spill_bytes else ""
        cells.setdefault(kernel.name, {})[kernel.architecture] = f"{kernel.registers}{spills}"
    lines = [
        "| registers | " + " | ".join(architectures) + " |",
        "|---|" + "---:|" * len(architectures),
    ]
    for name, row in cells.items():
        values = " | ".join(row.get(architecture, "") for architecture in architectures)
        lines.append(f"| `{name}` | {values} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--architectures",
        nargs="+",
        default=ARCHITECTURES,
        metavar="sm_XX",
        help=f"The GPU architectures to compile for. Default: {' '.join(ARCHITECTURES)}.",
    )
    parser.add_argument(
        "--source", choices=SOURCES, help="The source file to compile. Default: all of them."
    )
    flags = parser.parse_args()
    nvcc = find_program("nvcc")
    if nvcc is None:
        message = "cuda_kernels: this machine lacks nvcc: set CUDA_HOME or put it on PATH"
        print(message, file=sys.stderr)
        return 2
    spilling = 0
    with tempfile.TemporaryDirectory() as directory:
        for name in (flags.source,) if flags.source else SOURCES:
            kernels = []
            for architecture in flags.architectures:
                print(f"{name} for {architecture} ...", file=sys.stderr, flush=True)
                try:
                    kernels += compile_kernels(nvcc, name, architecture, pathlib.Path(directory))
                except CompilationFailed as failure:
                    print(failure, file=sys.stderr)
                    return 1
            print(f"{name}\n\n{resource_table(kernels)}\n", flush=True)
            spilling += sum(kernel.spill_bytes > 0 for kernel in kernels)
    print(f"{spilling} kernels spill registers")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main())
