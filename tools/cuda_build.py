r"""Compiles the CUDA kernels with nvcc alone, without Bazel, and reads what ptxas says of them.

    python tools/cuda_build.py                              # registers and spills, as a table
    python tools/cuda_build.py --architectures=sm_80 --source=varlen_attention

Needs nvcc 12 or 13, in $CUDA_HOME/bin or on PATH, and no GPU. The exit status is 1 where a kernel
spills registers and 2 where there is no nvcc. The object that TensorFlow loads comes from Bazel:
`make ops CUDA_HOME=...`.
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

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ("fused_bias_gelu", "fused_residual_layer_norm", "varlen_attention")
# Also in custom_ops/kernels/BUILD.
NVCC_FLAGS = ("-x", "cu", "-std=c++17", "-O3", "--extended-lambda", "--expt-relaxed-constexpr")
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")

# What `-Xptxas -v` writes of a kernel.
_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\S+)' for '(?P<architecture>\S+)'.*?"
    r"(?P<spill_stores>\d+) bytes spill stores, (?P<spill_loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers",
    re.DOTALL,
)
_TYPES = (("(anonymous namespace)::", ""), ("bert_tf::", ""), ("cuda::", ""), ("void ", ""))


class CompilationFailed(Exception):
    """nvcc's messages."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What ptxas says of one kernel.

    Attributes:
        name: Its name with its template arguments, as `ForwardKernel<BFloat16, 64, true>`.
        architecture: Such as sm_90.
        registers: Of a thread.
        spill_bytes: Stored to and loaded from local memory, of a thread.
    """

    name: str
    architecture: str
    registers: int
    spill_bytes: int


def find_nvcc() -> str | None:
    """The path of nvcc in $CUDA_HOME/bin or on PATH, or None."""
    home = os.environ.get("CUDA_HOME")
    if home and (pathlib.Path(home) / "bin" / "nvcc").is_file():
        return str(pathlib.Path(home) / "bin" / "nvcc")
    return shutil.which("nvcc")


def source_path(name: str) -> pathlib.Path:
    return ROOT / "custom_ops" / "kernels" / f"{name}.cu.cc"


def build(nvcc: str, architecture: str, directory: pathlib.Path) -> pathlib.Path:
    """Compiles all kernels into one shared object.

    Args:
        nvcc: its path.
        architecture: `sm_90`, or what else nvcc's -arch takes.
        directory: where the object goes.

    Returns:
        The object's path.
    """
    library = directory / "libbert_tf_cuda.so"
    toolkit = pathlib.Path(nvcc).resolve().parent.parent
    folders = [f"-L{toolkit / name}" for name in ("lib64", "lib") if (toolkit / name).is_dir()]
    sources = [str(source_path(name)) for name in SOURCES]
    subprocess.run(
        [
            nvcc,
            *NVCC_FLAGS,
            f"-I{ROOT}",
            f"-arch={architecture}",
            "-Xcompiler",
            "-fPIC",
            "-shared",
            "-cudart",
            "static",
            *folders,
            *sources,
            "-o",
            str(library),
        ],
        check=True,
    )
    return library


def compile_kernels(
    nvcc: str, name: str, architecture: str, directory: pathlib.Path
) -> list[Kernel]:
    """Compiles one source, warnings being errors, and tells what each kernel takes.

    Args:
        nvcc: its path.
        name: one of `SOURCES`.
        architecture: as in `build`.
        directory: where the object file goes.

    Raises:
        CompilationFailed: with the end of nvcc's messages.
    """
    result = subprocess.run(
        [
            nvcc,
            *NVCC_FLAGS,
            f"-I{ROOT}",
            f"-arch={architecture}",
            "-Xptxas",
            "-v",
            "-Werror",
            "all-warnings",
            "-c",
            str(source_path(name)),
            "-o",
            str(directory / f"{name}_{architecture}.o"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise CompilationFailed(result.stderr[-4000:])
    return read_report(result.stderr)


def read_report(text: str) -> list[Kernel]:
    """The kernels of what `nvcc -Xptxas -v` writes."""
    entries = list(_ENTRY.finditer(text))
    names = _demangled([entry["name"] for entry in entries])
    return [
        Kernel(
            name,
            entry["architecture"],
            int(entry["registers"]),
            int(entry["spill_stores"]) + int(entry["spill_loads"]),
        )
        for entry, name in zip(entries, names)
    ]


def _demangled(names: list[str]) -> list[str]:
    """C++ names for people, where binutils (which g++ needs) can be asked."""
    if names and shutil.which("c++filt"):
        answer = subprocess.run(
            ["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True
        )
        names = answer.stdout.splitlines()
    result = []
    for name in names:
        for old, new in _TYPES:
            name = name.replace(old, new)
        result.append(name.split("(")[0])
    return result


def resource_table(kernels: list[Kernel]) -> str:
    """Registers of a thread in Markdown, a row a kernel and a column an architecture; spilled bytes
    stand behind a plus."""
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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--architectures", nargs="+", default=ARCHITECTURES, metavar="sm_XX")
    parser.add_argument("--source", choices=SOURCES, help="Only this one.")
    flags = parser.parse_args()
    nvcc = find_nvcc()
    if nvcc is None:
        print(
            "cuda_build: this machine lacks nvcc: set CUDA_HOME or put it on PATH", file=sys.stderr
        )
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
