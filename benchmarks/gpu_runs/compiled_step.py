"""Run 2 on a GPU: the training step that TensorFlow compiles with XLA, through JAX.

    python3 -m benchmarks.gpu_runs.compiled_step --step_dir=step --output_dir=out

Needs JAX, but not TensorFlow: --step_dir is the folder of `export_step` with the libraries that
`pack --run=2` packs and `unpack` joins. Each arrangement is a process of its own, with flags of
XLA: first a small step whose losses and gradients are compared, with native and with plain
TensorFlow, then the times of both, then variants. A process that fails or hangs does not stop the
others. --rehearse runs them on a CPU, for a step that was exported with --emulated.
"""

import ctypes
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

from ..cuda_kernels.build import open_library
from . import session

_NO_GRAPHS = "--xla_gpu_enable_command_buffer="
_NO_TRITON = "--xla_gpu_enable_triton_gemm=false"
_NO_AUTOTUNING = "--xla_gpu_autotune_level=0"
_CUDNN_FUSIONS = "--xla_gpu_cudnn_gemm_fusion_level=2"
# The step, the flags of XLA and the variables of the process: the most important ones first.
ARRANGEMENTS = {
    "numbers of plain": ("reference_numbers", "", {}),
    "numbers of native": ("native_numbers", "", {}),
    "native": ("native", "", {}),
    "plain": ("reference", "", {}),
    "numbers of native, attention by cuDNN": ("native_numbers", "", {"BERT_TF_CUDNN": "1"}),
    "native, attention by cuDNN": ("native", "", {"BERT_TF_CUDNN": "1"}),
    "native, no CUDA graphs": ("native", _NO_GRAPHS, {}),
    "native, no Triton": ("native", _NO_TRITON, {}),
    "plain, no Triton": ("reference", _NO_TRITON, {}),
    "native, cuDNN fusions": ("native", _CUDNN_FUSIONS, {}),
    "plain, cuDNN fusions": ("reference", _CUDNN_FUSIONS, {}),
    "plain, no CUDA graphs": ("reference", _NO_GRAPHS, {}),
    "native, no autotuning": ("native", _NO_AUTOTUNING, {}),
    "plain, no autotuning": ("reference", _NO_AUTOTUNING, {}),
}
_LEAST_SECONDS = 30  # to start, compile and run an arrangement
_GRADIENTS = "_adam_m"  # the means of AdamWeightDecay: after one step, scaled gradients


def register(folder: pathlib.Path, rehearse: bool) -> None:
    """Registers the foreign functions of the ops with JAX."""
    import jax

    kind = "emulated" if rehearse else "gpu"
    if not rehearse:
        open_library(folder / "_bert_tf_kernels.so")  # and NVRTC
    ctypes.CDLL(str(folder / "libtensorflow_framework.so.2"))  # the other one needs it
    library = ctypes.CDLL(str(folder / f"_bert_tf_{kind}_handlers.so"))
    get = library.BertTfCudaHandler
    get.restype = ctypes.c_char_p
    address, number = ctypes.c_void_p(), 0
    platform = "cpu" if rehearse else "CUDA"
    while name := get(ctypes.c_int64(number), ctypes.byref(address)):
        capsule = jax.ffi.pycapsule(address.value)
        jax.ffi.register_ffi_target(name.decode(), capsule, platform=platform)
        number += 1


def values(described: list[dict]) -> list:
    """Returns the parameters as NumPy arrays; equal names have equal values."""
    import numpy as np

    arrays = []
    for one in described:
        if "value" in one:
            array = np.array(one["value"], one["dtype"])
        else:
            random = np.random.default_rng(zlib.crc32(one["name"].encode()))
            array = random.standard_normal(one["shape"], np.float32)
            array = array * one["deviation"] + one["mean"]
        arrays.append(array.astype(one["dtype"]).reshape(one["shape"]))
    return arrays


def compile_step(program: bytes, described: list[dict]):
    """Compiles the program for the first device; parameters with new values are donated."""
    import jax
    from jax._src.interpreters import mlir
    from jax._src.lib.mlir import ir
    from jaxlib import _jax, xla_client

    from ..gpu_program.compile_for_gpu import read_program

    with mlir.make_ir_context():
        module = read_program(program)
        (main,) = (
            function
            for function in module.body.operations
            if ir.StringAttr(function.attributes["sym_name"]).value == "main"
        )
        i32 = ir.IntegerType.get_signless(32)
        attributes = [
            ir.DictAttr.get(
                {}
                if one["output"] is None
                else {"tf.aliasing_output": ir.IntegerAttr.get(i32, one["output"])}
            )
            for one in described
        ]
        main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        devices = _jax.DeviceList(tuple(jax.devices()[:1]))
        options = xla_client.CompileOptions()
        client = jax.devices()[0].client
        return client.compile_and_load(module, devices, options)


def run_arrangement(flags) -> None:
    """Runs an arrangement in this process and writes what it found into a folder."""
    import jax
    import numpy as np

    jax.config.update("jax_enable_x64", True)
    if flags.rehearse:
        jax.config.update("jax_platforms", "cpu")
    name, *_ = ARRANGEMENTS[flags.arrangement]
    register(flags.step_dir, flags.rehearse)
    described = json.loads((flags.step_dir / f"{name}.json").read_text())
    start = time.perf_counter()
    step = compile_step((flags.step_dir / f"{name}.pb").read_bytes(), described)
    found = {"compile seconds": time.perf_counter() - start}
    device = jax.devices()[0]
    arguments = [jax.device_put(array, device) for array in values(described)]

    def run():
        results = step.execute(arguments)
        for place, one in enumerate(described):
            if one["output"] is not None:
                arguments[place] = results[one["output"]]
        return results

    results = run()
    outputs = {"loss": np.asarray(results[0])}
    for one, value in zip(described, arguments, strict=True):
        if name.endswith("numbers") and one["name"].endswith(_GRADIENTS):
            outputs[one["name"]] = np.asarray(value)
    np.savez(flags.output_dir / "outputs.npz", **outputs)
    rounds, steps = (2, 1) if flags.rehearse else (5, 10)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(steps):
            last = run()
        last[0].block_until_ready()
        jax.block_until_ready(arguments)
        times.append(1e3 * (time.perf_counter() - start) / steps)
    found |= {"ms": statistics.median(times), "least ms": min(times), "most ms": max(times)}
    found["device"] = f"{device.device_kind}, JAX {jax.__version__}"
    memory = device.memory_stats() or {}
    found["peak MiB"] = memory.get("peak_bytes_in_use", 0) / 2**20
    (flags.output_dir / "found.json").write_text(json.dumps(found))


def compare(run: session.Session, what: str, actual, expected) -> None:
    """Compares losses and gradients with those of plain TensorFlow."""
    import numpy as np

    names = [name for name in expected if name.endswith(_GRADIENTS)]
    distance, total, worst = 0.0, 0.0, ("", 0.0)
    for name in names:
        wanted = expected[name].astype(np.float64)
        off = np.linalg.norm(actual[name] - wanted)
        size = np.linalg.norm(wanted)
        distance, total = np.hypot(distance, off), np.hypot(total, size)
        if size and off / size >= worst[1]:
            worst = (name, off / size)
    losses = [float(outputs["loss"]) for outputs in (actual, expected)]
    error = float(distance / total) if names else float("nan")
    run.put(
        "compared with plain", what, gradients=len(names), error=error, worst=float(worst[1]),
        of=worst[0], loss=losses[0], **{"plain loss": losses[1]},
    )  # fmt: skip
    if not (error < 0.1 and abs(losses[0] - losses[1]) < 0.01 * abs(losses[1])):
        run.problem(f"{what} has other numbers than plain TensorFlow: {error:.3g}, losses {losses}")


def measure(run: session.Session, flags, arrangement: str, scratch: pathlib.Path):
    """Runs an arrangement in a process of its own; returns its losses and gradients."""
    import numpy as np

    _, xla_flags, variables = ARRANGEMENTS[arrangement]
    command = [
        sys.executable, "-m", __spec__.name, f"--arrangement={arrangement}",
        f"--step_dir={flags.step_dir.resolve()}", f"--output_dir={scratch}",
        *(["--rehearse"] if flags.rehearse else []),
    ]  # fmt: skip
    xla_flags = f"{os.environ.get('XLA_FLAGS', '')} {xla_flags}".strip()
    environment = {**os.environ, **variables, "XLA_FLAGS": xla_flags}
    environment["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    for path in scratch.iterdir():
        path.unlink()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=run.left() - 5
    )
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr[-1200:]}")
    run.put("step", arrangement, **json.loads((scratch / "found.json").read_text()))
    with np.load(scratch / "outputs.npz") as outputs:
        return dict(outputs)


def main() -> int:
    parser = session.parser(__doc__)
    parser.add_argument("--step_dir", type=pathlib.Path, required=True, help="The exported step.")
    parser.add_argument("--arrangement", choices=list(ARRANGEMENTS), help="Only for its processes.")
    flags = parser.parse_args()
    if flags.arrangement:
        run_arrangement(flags)
        return 0
    run = session.Session("compiled_step", flags)
    plain = None
    with tempfile.TemporaryDirectory() as folder:
        for arrangement in ARRANGEMENTS:
            found = run.attempt(
                arrangement,
                lambda name=arrangement: measure(run, flags, name, pathlib.Path(folder)),
                least_seconds=_LEAST_SECONDS,
            )
            if arrangement == "numbers of plain":
                plain = found
            elif arrangement.startswith("numbers") and found is not None and plain is not None:
                compare(run, arrangement, found, plain)
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
