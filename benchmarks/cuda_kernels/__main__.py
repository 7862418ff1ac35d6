"""Builds, checks and times the CUDA kernels on a GPU, with nvcc and PyTorch, without TensorFlow.

    python -m benchmarks.cuda_kernels
    python -m benchmarks.cuda_kernels --no_timing
    python -m benchmarks.cuda_kernels --build_only --architecture=sm_90 --library=kernels.so
    python -m benchmarks.cuda_kernels --library=kernels.so

Needs nvcc 12 or 13 (in $CUDA_HOME/bin or on PATH), PyTorch with CUDA, and a GPU of compute
capability 8.0 or more; --build_only needs only nvcc, and --library (kernels that --build_only
built, perhaps on another machine) needs no nvcc. The exit status is 1 if a check fails, and 2 if
nvcc, PyTorch or the GPU is missing.

Every op and its gradient are compared with float64 for several dtypes and shapes. Outputs are
filled with NaN before each call, so that missing values show. Repeated calls, calls in place and
calls recorded in a CUDA graph must give the same bits. cuda_kernels/timing.py measures the times.
"""

import argparse
import ctypes
import pathlib
import sys
import tempfile

from .build import build, find_program


class Missing(Exception):
    """Something that is needed is missing on this machine."""


def gpu_architecture():
    """Returns the architecture of the GPU, such as `sm_90`; raises `Missing` without one."""
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch ({error}): pip install torch") from None
    if not torch.cuda.is_available():
        raise Missing("a GPU that PyTorch sees (torch.cuda.is_available() is False)")
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        raise Missing(f"a GPU of compute capability 8.0 or more. Received: {capability}")
    return "sm_{}{}".format(*capability)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build_only",
        action="store_true",
        help="Build the kernels, but do not check or time them.",
    )
    parser.add_argument(
        "--no_timing", action="store_true", help="Check the kernels, but do not time them."
    )
    parser.add_argument(
        "--architecture",
        default="sm_90",
        help="With --build_only: the GPU architecture to build for. Default: sm_90.",
    )
    parser.add_argument(
        "--library",
        type=pathlib.Path,
        metavar="FILE",
        help="The shared library to check instead of building one; with --build_only: the file to "
        "keep the built library in.",
    )
    flags = parser.parse_args()
    try:
        nvcc = find_program("nvcc")
        if nvcc is None and (flags.build_only or not flags.library):
            raise Missing("nvcc: set CUDA_HOME or put it on PATH")
        architecture = flags.architecture if flags.build_only else gpu_architecture()
    except Missing as missing:
        print(f"Not run: this machine lacks {missing}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as directory:
        path = flags.library or pathlib.Path(directory) / "libbert_tf_cuda.so"
        if flags.build_only or not flags.library:
            build(nvcc, architecture, path)
            print(f"built for {architecture} with {nvcc}: {path.stat().st_size:,} bytes")
        library = ctypes.CDLL(str(path.resolve()))
        if flags.build_only:
            return 0
        from . import checks, timing  # they need PyTorch

        checker = checks.check_kernels(library)
        checker.report()
        if checker.failures:
            return 1
        if not flags.no_timing:
            timing.Timer(checker.kernels).all()
        return 0


if __name__ == "__main__":
    sys.exit(main())
