r"""Compiles the GPU kernels with NVRTC, as a GPU gets them, and prints their registers as a table.

    python -m benchmarks.cuda_kernels.build
    python -m benchmarks.cuda_kernels.build --architectures sm_80 sm_90 --source=fused_bias_gelu

Needs bert_tf/ops/_bert_tf_kernels.so (`make ops`) and NVRTC (`pip install nvidia-cuda-nvrtc-cu12`,
or a CUDA toolkit on LD_LIBRARY_PATH), but no GPU. The exit status is 1 if a kernel keeps data in
local memory, as it does when registers spill, or does not compile, and 2 if something is missing.
"""

import argparse
import ctypes
import dataclasses
import os
import pathlib
import shutil
import struct
import sys
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARY = ROOT / "bert_tf" / "ops" / "_bert_tf_kernels.so"
SOURCES = sorted(
    path.name.removesuffix(".cu.cc") for path in ROOT.glob("custom_ops/kernels/*/*.cu.cc")
)
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90")
NVRTC = ("libnvrtc.so.12", "libnvrtc.so.13", "libnvrtc.so")

# The attributes in a section .nv.info have a format, a number, and a value. nvdisasm calls these
# EIATTR_FRAME_SIZE, EIATTR_KPARAM_INFO and EIATTR_REGCOUNT.
_FRAME_SIZE, _PARAMETER, _REGISTERS = 0x11, 0x17, 0x2F
_WITH_SIZE = 4  # a format: two bytes of size, then the value; all others have two bytes of value


class Missing(Exception):
    """Something that is needed is missing on this machine."""


class CompilationFailed(Exception):
    """NVRTC failed; the text is its message."""


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A kernel in the machine code of an architecture."""

    name: str  # with its template arguments, such as `ForwardKernel<BFloat16, 64, true>`
    architecture: str
    registers: int  # per thread
    frame_bytes: int  # of local memory per thread
    parameter_bytes: tuple[int, ...]
    cubin: bytes = dataclasses.field(repr=False)


def open_library(path: pathlib.Path = LIBRARY) -> ctypes.CDLL:
    """Opens the launchers, and NVRTC, which they look for.

    Raises:
        Missing: If there is no such file, or no NVRTC.
    """
    if not path.is_file():
        raise Missing(f"{path}: make ops")
    found = [
        str(file) for folder in sys.path for file in pathlib.Path(folder).glob("nvidia/*/lib/*")
        if file.name in NVRTC
    ]  # fmt: skip
    for name in (*sorted(found, key=os.path.basename), *NVRTC):
        try:
            ctypes.CDLL(name)
            break
        except OSError:
            continue
    else:
        raise Missing("NVRTC: pip install nvidia-cuda-nvrtc-cu12")
    library = ctypes.CDLL(str(path.resolve()))
    library.BertTfCudaKernel.restype = library.BertTfCudaError.restype = ctypes.c_char_p
    return library


def descriptions(library: ctypes.CDLL) -> list[tuple[str, str, tuple[int, ...]]]:
    """Returns the source, the name and the sizes of the parameters of each kernel."""
    kernels = []
    while text := library.BertTfCudaKernel(len(kernels)):
        source, name, *sizes = text.decode().split("\n")
        source = pathlib.Path(source).name.removesuffix(".cu.cc")
        kernels.append((source, name, tuple(map(int, sizes))))
    return kernels


def compile_kernels(library: ctypes.CDLL, source: str, architecture: str) -> list[Kernel]:
    """Compiles the kernels of a source for an architecture, such as `sm_90`.

    Raises:
        CompilationFailed: If NVRTC fails.
    """
    kernels = []
    for index, (of_source, name, _) in enumerate(descriptions(library)):
        if of_source == source:
            cubin = compile_kernel(library, index, architecture)
            kernels.append(Kernel(name, architecture, *read_cubin(cubin, name), cubin))
    return kernels


def compile_kernel(library: ctypes.CDLL, index: int, architecture: str) -> bytes:
    """Compiles one of the `descriptions`, or gets it from the cache."""
    code, size = ctypes.c_void_p(), ctypes.c_int64()
    capability = int(architecture.removeprefix("sm_"))
    if library.BertTfCudaCompile(index, capability, ctypes.byref(code), ctypes.byref(size)):
        raise CompilationFailed(library.BertTfCudaError().decode())
    return ctypes.string_at(code, size.value)


def read_cubin(cubin: bytes, kernel: str) -> tuple[int, int, tuple[int, ...]]:
    """Returns the registers, the bytes of local memory and the sizes of parameters of a kernel.

    The code is an ELF file, which has all kernels of a source that are no templates: the first two
    are the largest of them.
    """
    registers, frame_bytes, sizes = 0, 0, {}
    base = kernel.split("<")[0]
    own = f"{len(base)}{base}"  # in the mangled name
    for name, content in _sections(cubin):
        if name.startswith(".nv.info"):
            for number, value in _attributes(content):
                if number == _FRAME_SIZE:
                    frame_bytes = max(frame_bytes, struct.unpack("<II", value)[1])
                elif number == _REGISTERS:
                    registers = max(registers, struct.unpack("<II", value)[1])
                elif number == _PARAMETER and own in name:
                    _, ordinal, _, flags = struct.unpack("<IHHI", value)
                    sizes[ordinal] = flags >> 18
    return registers, frame_bytes, tuple(sizes[i] for i in sorted(sizes))


def _sections(elf: bytes) -> Iterator[tuple[str, bytes]]:
    """Yields the names and the contents of the sections of a 64-bit ELF file."""
    (start,) = struct.unpack_from("<Q", elf, 0x28)
    entry, count, names_at = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, start + entry * i) for i in range(count)]
    _, _, _, _, offset, size, *_ = headers[names_at]
    names = elf[offset : offset + size]
    for name, kind, _, _, offset, size, *_ in headers:
        content = b"" if kind == 8 else elf[offset : offset + size]  # 8: occupies no space
        yield names[name : names.index(b"\0", name)].decode(), content


def _attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(content):
        form, number, size = struct.unpack_from("<BBH", content, place)
        place += 4
        if form == _WITH_SIZE:
            yield number, content[place : place + size]
            place += size


def find_program(name: str) -> str | None:
    """Returns the path of a program such as nvdisasm in $CUDA_HOME/bin or on PATH, or None."""
    home = os.environ.get("CUDA_HOME")
    return (home and shutil.which(name, path=f"{home}/bin")) or shutil.which(name)


def resource_table(kernels: list[Kernel]) -> str:
    """Formats the registers per thread as Markdown; bytes in local memory follow a plus sign."""
    architectures = list(dict.fromkeys(kernel.architecture for kernel in kernels))
    cells: dict[str, dict[str, str]] = {}
    for kernel in kernels:
        spills = f" + {kernel.frame_bytes} bytes" if kernel.frame_bytes else ""
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
    try:
        library = open_library()
    except Missing as missing:
        print(f"cuda_kernels: this machine lacks {missing}", file=sys.stderr)
        return 2
    spilling = 0
    for source in (flags.source,) if flags.source else SOURCES:
        kernels = []
        for architecture in flags.architectures:
            print(f"{source} for {architecture} ...", file=sys.stderr, flush=True)
            try:
                kernels += compile_kernels(library, source, architecture)
            except CompilationFailed as failure:
                print(failure, file=sys.stderr)
                return 1
        print(f"{source}\n\n{resource_table(kernels)}\n", flush=True)
        spilling += sum(kernel.frame_bytes > 0 for kernel in kernels)
    print(f"{spilling} kernels use local memory")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main())
