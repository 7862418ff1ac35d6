"""Run 1 on a GPU: the kernels, with PyTorch and without TensorFlow.

    python3 -m benchmarks.gpu_runs.kernels --output_dir=out --library=_bert_tf_kernels.so

The order: all cores compile the kernels; properties of the GPU; the kernels in bfloat16 against
float64, with NaN after the end of every tensor, for at most a third of the time; the times of ours,
of the kernels of --before, and of PyTorch, cuDNN and torch.compile; the checks in the other dtypes.
--rehearse runs the kernels in the emulation of a GPU on a CPU, with small sizes; it needs NVRTC and
Bazel.
"""

import concurrent.futures
import ctypes
import functools
import itertools
import os
import pathlib
import sys
import time

from ..cuda_kernels.build import LIBRARY, compile_kernel, descriptions, open_library
from . import session

_DEVICE_PROPERTIES = 38  # CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR of cudnn_graph.h
_DEVICE_ID, _JSON = 2700, 2702  # its attributes
_INT32, _CHARACTERS = 23, 24  # of cudnnBackendAttributeType_t


def cudnn_properties() -> str:
    """Returns cuDNN's description of the GPU, JSON as in tests/ops/cudnn_devices.json."""
    cudnn = ctypes.CDLL("libcudnn.so.9")
    descriptor, device, size = ctypes.c_void_p(), ctypes.c_int32(0), ctypes.c_int64()

    def call(function, *arguments):
        status = getattr(cudnn, f"cudnnBackend{function}")(*arguments)
        if status:
            raise RuntimeError(f"cudnnBackend{function} returned {status}")

    call("CreateDescriptor", _DEVICE_PROPERTIES, ctypes.byref(descriptor))
    one = ctypes.c_int64(1)
    call("SetAttribute", descriptor, _DEVICE_ID, _INT32, one, ctypes.byref(device))
    call("Finalize", descriptor)
    get = ("GetAttribute", descriptor, _JSON, _CHARACTERS)
    call(*get, ctypes.c_int64(0), ctypes.byref(size), None)
    text = ctypes.create_string_buffer(size.value + 1)
    call(*get, size, ctypes.byref(size), text)
    return text.value.decode()


def compile_one(arguments) -> None:
    """Compiles a kernel into the cache, in a process of its own."""
    path, index, architecture = arguments
    compile_kernel(open_library(path), index, architecture)


def compile_all(run, path: pathlib.Path, architecture: str, sources) -> None:
    """Compiles the kernels of these sources, or all for None, with all cores."""
    start = time.monotonic()
    chosen = [
        (path, index, architecture)
        for index, (source, *_) in enumerate(descriptions(open_library(path)))
        if sources is None or source in sources
    ]
    with concurrent.futures.ProcessPoolExecutor() as pool:
        list(pool.map(compile_one, chosen))
    seconds = time.monotonic() - start
    run.put("compiled", path.name, kernels=len(chosen), processes=os.cpu_count(), seconds=seconds)


def check(run, checker, cases, until: float) -> None:
    """Checks cases until so many seconds are left."""
    for case in cases:
        if run.left() < until:
            return
        run.attempt(f"{case.func.__name__}{case.args[1:]}", case)
        failed = checker.failed[run.reported :]
        run.reported += len(failed)
        for what in failed:
            run.problem(f"FAILED {what}")
        worst = {f"{op} {dtype}": error for (op, dtype), error in checker.worst.items()}
        run.put("checks", "so far", number=checker.checks, failures=checker.failures, worst=worst)


def main() -> int:
    flags = session.parser(__doc__)
    flags.add_argument("--library", type=pathlib.Path, default=LIBRARY, help="The kernels.")
    flags.add_argument(
        "--before", type=pathlib.Path, help="Other kernels, whose launchers have equal arguments."
    )
    flags = flags.parse_args()
    if flags.rehearse and "EMULATED_CAPABILITY" not in os.environ:
        (driver,) = session.built("kernels:emulated_driver/libcuda.so.1")
        paths = f"{driver.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        os.environ |= {"LD_LIBRARY_PATH": paths, "EMULATED_CAPABILITY": "90"}
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])
    run = session.Session("kernels", flags)
    run.reported = 0
    capability = run.found["facts"]["gpu"].get("compute_cap", "9.0")
    libraries = [path for path in (flags.library, flags.before) if path is not None]
    for path in libraries:  # before this process uses CUDA, because the pool forks it
        sources = ("fused_bias_gelu",) if flags.rehearse else None
        compile_all(run, path, f"sm_{capability.replace('.', '')}", sources)
    import torch

    from ..cuda_kernels import checks, launchers, timing

    device = "cpu" if flags.rehearse else "cuda"
    if not flags.rehearse:
        run.fact("PyTorch", f"{torch.__version__}: {torch.cuda.get_device_properties(0)}")
    run.attempt("cuDNN's properties", lambda: run.fact("cuDNN", cudnn_properties()))
    kernels, *before = (launchers.Kernels(open_library(path), device) for path in libraries)
    torch.manual_seed(1)
    checker = checks.Checker(kernels, repeats=2 if flags.rehearse else 5)
    first, *others = torch.bfloat16, torch.float32, torch.float16
    cases = small_cases if flags.rehearse else checks.cases
    check(run, checker, cases(checker, [first]), until=run.seconds * 2 / 3)

    def record(what, share, times):
        run.put("milliseconds", what, **times, **({"share of the copy": share} if share else {}))

    sizes, flush_bytes = {}, 2**30
    if flags.rehearse:
        sizes, flush_bytes = {"rows": 3, "dense": (5,) * 2, "ragged": [7, 1, 70]}, 2**20
    timer = timing.Timer(kernels, *before, record=record, flush_bytes=flush_bytes)
    run.fact("copy in GB/s", timer.bandwidth / 1e9)
    # A rehearsal measures one case of each kernel; torch.compile takes a minute for each.
    for case in itertools.islice(timer.cases(**sizes), 0, *((5, 2) if flags.rehearse else (None,))):
        run.attempt(f"times of {case.func.__name__}{case.args}", case, least_seconds=5)
    check(run, checker, cases(checker, others), until=5)
    return run.finish()


def small_cases(checker, dtypes):
    """Yields a case of each kernel that the emulation runs in seconds."""
    from ..cuda_kernels import checks

    for dtype in dtypes:
        yield functools.partial(checks.bias_gelu, checker, 7, 33, dtype, False)
        yield functools.partial(checks.layer_norm, checker, 7, 77, dtype, 0.1, True, False)
        yield functools.partial(checks.attention, checker, [3, 0, 65], 2, 32, dtype, rate=0.1)


if __name__ == "__main__":
    sys.exit(main())
