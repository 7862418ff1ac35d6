"""Checks and times the CUDA kernels on a GPU, with PyTorch and without TensorFlow.

    python -m benchmarks.cuda_kernels
    python -m benchmarks.cuda_kernels --no_timing
    python -m benchmarks.cuda_kernels --library=_bert_tf_kernels.so

Needs bert_tf/ops/_bert_tf_kernels.so (`make ops` makes it, and --library names another one),
PyTorch with CUDA, which brings NVRTC, and a GPU of compute capability 8.0 or more. The exit status
is 1 if a check fails, and 2 if something is missing.

Every op and its gradient are compared with float64 for several dtypes and shapes. Outputs are
filled with NaN before each call, so that missing values show. Repeated calls, calls in place and
calls recorded in a CUDA graph must give the same bits. cuda_kernels/timing.py measures the times.
"""

import argparse
import pathlib
import sys

from .build import LIBRARY, Missing, open_library


def check_gpu():
    """Raises `Missing` without a GPU that can run the kernels."""
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch ({error}): pip install torch") from None
    if not torch.cuda.is_available():
        raise Missing("a GPU that PyTorch sees (torch.cuda.is_available() is False)")
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        raise Missing(f"a GPU of compute capability 8.0 or more. Received: {capability}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--no_timing", action="store_true", help="Check the kernels, but do not time them."
    )
    parser.add_argument(
        "--library",
        type=pathlib.Path,
        default=LIBRARY,
        metavar="FILE",
        help="The shared library to check. Default: that of `make ops`.",
    )
    flags = parser.parse_args()
    try:
        check_gpu()
        library = open_library(flags.library)
    except Missing as missing:
        print(f"Not run: this machine lacks {missing}", file=sys.stderr)
        return 2
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
