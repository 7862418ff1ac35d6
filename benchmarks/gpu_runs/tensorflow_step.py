"""Run 3 on a GPU: TensorFlow itself, with a training step of BERT in bfloat16.

    python3 -m benchmarks.gpu_runs.tensorflow_step --site_packages=/tmp/joined --output_dir=out

--site_packages is what `pack --join` has made of TensorFlow for this Python. CUDA's libraries are
those of the packages of NVIDIA that PyTorch or JAX has installed: TensorFlow finds them under the
names of CUDA 12, whichever version they are. The steps are those of `python -m benchmarks training
--device=gpu`, the most important ones first. --rehearse runs a small model on a CPU.
"""

import functools
import os
import pathlib
import sys

from . import session

# What TensorFlow 2.21 opens.
LIBRARIES = (
    "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcufft.so.11",
    "libcusolver.so.11", "libcusparse.so.12", "libcudnn.so.9", "libcupti.so.12", "libnccl.so.2",
    "libnvJitLink.so.12", "libnvrtc.so.12",
)  # fmt: skip
TOOLKITS = ("/usr/local/cuda", "nvidia/cuda_nvcc", "nvidia/cu13")  # with nvvm/libdevice
# (model, batch, arrangement), the names of benchmarks/gpu_training.py.
STEPS = (
    ("base", "128x128", "native"),
    ("base", "128x128", "native, XLA"),
    ("base", "128x128", "plain TensorFlow, XLA"),
    ("base", "ragged", "native"),
    ("base", "ragged", "plain TensorFlow, XLA"),
    ("base", "32x512", "native"),
    ("base", "32x512", "native, XLA"),
    ("base", "32x512", "plain TensorFlow, XLA"),
    ("base", "128x128", "plain TensorFlow"),
    ("large", "128x128", "native"),
    ("large", "128x128", "native, XLA"),
    ("large", "128x128", "plain TensorFlow, XLA"),
)
_LEAST_SECONDS = 40  # to start a process and trace a step


def find_libraries(folders: list[pathlib.Path]) -> dict[str, pathlib.Path]:
    """Returns the file for each name: one of that name, or else of the newest other version."""
    found = {}
    for name in LIBRARIES:
        stem = name[: name.index(".so.") + 4]
        files = [file for folder in folders for file in folder.glob(f"nvidia/*/lib/{stem}*")]
        files += pathlib.Path("/usr/local/cuda/lib64").glob(f"{stem}*")
        exact = [file for file in files if file.name == name]
        if files:
            found[name] = exact[0] if exact else max(files, key=lambda file: file.name)
    return found


def environment(site_packages: pathlib.Path, folders: list[pathlib.Path], aliases: pathlib.Path):
    """Links the libraries under TensorFlow's names; returns variables, and the files by name."""
    aliases.mkdir(parents=True, exist_ok=True)
    libraries = find_libraries(folders)
    for name, file in libraries.items():
        (aliases / name).unlink(missing_ok=True)
        (aliases / name).symlink_to(file)
    # The libraries need others by their own names.
    paths = [aliases, *dict.fromkeys(file.parent for file in libraries.values())]
    toolkits = [pathlib.Path(TOOLKITS[0])]
    toolkits += [folder / name for folder in folders for name in TOOLKITS[1:]]
    flags = os.environ.get("XLA_FLAGS", "")
    for toolkit in toolkits:
        if (toolkit / "nvvm" / "libdevice").is_dir():
            flags += f" --xla_gpu_cuda_data_dir={toolkit}"
            break
    variables = {
        "LD_LIBRARY_PATH": ":".join(map(str, [*paths, os.environ.get("LD_LIBRARY_PATH", "")])),
        "PYTHONPATH": f"{site_packages}:{session.ROOT}",
        "XLA_FLAGS": flags.strip(),
        "BERT_TF_GPU_RUN": str(aliases),
    }
    return variables, {name: str(file) for name, file in libraries.items()}


def measure(run: session.Session, gpu, sizes, steps: int, what) -> None:
    """Adds the time of a step; its process has a TensorFlow of its own."""
    from .. import gpu_training, report, workers
    from ..workloads import Workload

    model, batch, arrangement = what
    if batch == "ragged":
        workload = Workload.ragged(count=128)
    else:
        workload = Workload.dense(*map(int, batch.split("x")))
    options = report.Options(rounds=3, turn_seconds=1, search_calls=1)
    found = report.Report(options)
    gpu_training.run(
        functools.partial(workers.Worker, threads=os.cpu_count()),
        {model: sizes},
        [workload],
        gpu,
        found,
        steps,
        {arrangement: gpu_training.ARRANGEMENTS[arrangement]},
    )
    for problem in found.problems:
        run.problem(problem[-1500:])
    for row in (row for table in found.tables for row in table.rows):
        values = {name: report.format_value(value) for name, value in row.items()}
        run.put("step", f"{model}, {values.pop('batch')}, {values.pop('ops')}", **values)


def main() -> int:
    parser = session.parser(__doc__)
    parser.add_argument("--site_packages", type=pathlib.Path, help="The joined TensorFlow.")
    flags = parser.parse_args()
    if "BERT_TF_GPU_RUN" not in os.environ and flags.site_packages is not None:
        site_packages = flags.site_packages.resolve()
        folders = [site_packages, *(pathlib.Path(folder) for folder in sys.path if folder)]
        variables, _ = environment(site_packages, folders, site_packages / "cuda_12_names")
        os.environ |= variables
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *sys.argv[1:]])
    run = session.Session("tensorflow_step", flags)
    aliases = pathlib.Path(os.environ.get("BERT_TF_GPU_RUN", "."))
    libraries = {name: str((aliases / name).resolve()) for name in LIBRARIES}
    run.fact("libraries", {name: path for name, path in libraries.items() if os.path.exists(path)})
    import tensorflow as tf

    import bert_tf

    from .. import gpu_training, models
    from .export_step import TINY

    run.fact("TensorFlow", f"{tf.__version__} in {pathlib.Path(tf.__file__).parent}")
    if flags.rehearse:
        gpu = gpu_training.Gpu("CPU", 1e12)
    else:
        gpu = run.attempt("GPU", gpu_training.require_gpu)
        if gpu is None:
            return run.finish()
    run.fact("GPU", str(gpu))
    chosen, steps = STEPS, 10
    if flags.rehearse:
        chosen, steps = [("base", "2x16", arrangement) for _, _, arrangement in STEPS[:3]], 1
    for what in chosen:
        sizes = TINY if flags.rehearse else models.CONFIGS[what[0]]
        sizes = bert_tf.BertConfig(**sizes).to_dict()
        run.attempt(
            str(what),
            functools.partial(measure, run, gpu, sizes, steps, what),
            least_seconds=_LEAST_SECONDS,
        )
    return run.finish()


if __name__ == "__main__":
    sys.exit(main())
