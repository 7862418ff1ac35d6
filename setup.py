"""Installs bert_tf and, where Bazel is on PATH, builds the custom ops into it.

The ops fit one minor version of TensorFlow: the one of the environment that builds them. An
isolated build (pip's default) takes the newest that setup() allows; to build for the version you
have, install it first and run `pip install --no-build-isolation .`.

BERT_TF_BUILD_OPS=auto|0|1 says whether to build the ops: where Bazel is (the default), never, or
always (an error without Bazel). Where CUDA_HOME names a CUDA toolkit, their GPU kernels are built
too.
"""

from __future__ import annotations

import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.errors import ExecError, SetupError

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # setuptools before 70.1, as a fresh `python -m venv` has it
    try:
        from wheel.bdist_wheel import bdist_wheel
    except ImportError:
        raise SystemExit(
            "setup.py needs setuptools 70.1 or newer, or the package wheel. With "
            "--no-build-isolation install it first: pip install 'setuptools>=70.1' wheel"
        ) from None

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))  # An isolated build does not put the tree on the path.
import configure  # noqa: E402

OPS_PACKAGE = Path("bert_tf") / "ops"
BUILD_VARIABLE = "BERT_TF_BUILD_OPS"
OPS_FILES = ("custom_ops/ops/_bert_tf_ops.so", "custom_ops/ops/_build_info.json")
XLA_FILES = ("custom_ops/xla/_bert_tf_xla.so", "custom_ops/xla/_xla_build_info.json")
GPU_FILES = ("custom_ops/ops/_bert_tf_gpu_ops.so", "custom_ops/ops/_gpu_build_info.json")
GPU_XLA_FILES = ("custom_ops/xla/_bert_tf_gpu_xla.so", "custom_ops/xla/_gpu_xla_build_info.json")
CUDA_FILES = GPU_FILES + GPU_XLA_FILES
# The programs of tools/ and the packages that they import are a folder of the installed package.
PROGRAMS = runpy.run_path(str(ROOT / "bert_tf" / "programs.py"))
TOOLS_PACKAGE = "bert_tf._tools"
PACKAGES_OF_TOOLS = ("common", "planning", "benchmarks", "benchmarks.peers")
BUILT_FILES = tuple(Path(file).name for file in OPS_FILES + XLA_FILES + CUDA_FILES)


def builds_ops() -> bool:
    """Whether this run builds the custom ops."""
    choice = os.environ.get(BUILD_VARIABLE, "auto")
    if choice not in ("auto", "0", "1"):
        raise SetupError(
            f"Expected {BUILD_VARIABLE} to be auto, 0 or 1. Received: {BUILD_VARIABLE}={choice!r}"
        )
    if choice == "1" and configure.find_bazel() is None:
        raise SetupError(
            f"Expected Bazel on PATH because of {BUILD_VARIABLE}=1. Install `bazel` or `bazelisk`."
        )
    if choice == "0" or configure.find_bazel() is None:
        return False
    try:
        configure.find_cuda_home()
    except RuntimeError as error:
        raise SetupError(str(error)) from None
    return True


def files_to_build() -> tuple[str, ...]:
    """What Bazel makes for this interpreter's TensorFlow: the ops, and their GPU kernels where
    CUDA_HOME names a toolkit; of both what XLA needs, where its headers are."""
    with_xla = configure.has_xla_headers()
    files = OPS_FILES + (XLA_FILES if with_xla else ())
    if configure.find_cuda_home() is not None:
        files += GPU_FILES + (GPU_XLA_FILES if with_xla else ())
    return files


def build_ops(target: Path) -> None:
    """Builds the ops with Bazel for this interpreter's TensorFlow and puts them into `target`."""
    bazel = configure.find_bazel()
    # pip's isolated builds find TensorFlow through PYTHONPATH.
    flags = configure.bazel_flags(python_path=os.environ.get("PYTHONPATH"))
    files = files_to_build()
    if not set(XLA_FILES) <= set(files):
        print("This TensorFlow ships no headers of XLA: jit_compile will take plain TensorFlow.")
    # One after the other: what is compiled with --config=cuda is not shared with other builds.
    for config, chosen in (
        ([], [file for file in files if file not in CUDA_FILES]),
        (["--config=cuda"], [file for file in files if file in CUDA_FILES]),
    ):
        if not chosen:
            continue
        labels = ["//" + ":".join(file.rsplit("/", 1)) for file in chosen]
        _run_bazel([bazel, "build", *config, *flags, *labels])
    answer = _run_bazel([bazel, "info", *flags, "bazel-bin"], stdout=subprocess.PIPE, text=True)
    built = Path(answer.stdout.strip())
    target.mkdir(parents=True, exist_ok=True)
    for name in BUILT_FILES:  # Of an earlier build, for another TensorFlow perhaps.
        if name not in {Path(file).name for file in files}:
            (target / name).unlink(missing_ok=True)
    for file in files:
        # Moved into place in one step: a running process keeps the object it has loaded.
        name = Path(file).name
        unfinished = target / f"{name}.{os.getpid()}"
        shutil.copyfile(built / file, unfinished)
        os.replace(unfinished, target / name)


def _run_bazel(command: list[str], **options) -> subprocess.CompletedProcess:
    print("running", " ".join(command), flush=True)
    try:
        return subprocess.run(command, cwd=ROOT, check=True, **options)
    except subprocess.CalledProcessError as error:
        raise ExecError(
            f"Bazel could not build the custom ops ({error}); its messages stand above. "
            f"{BUILD_VARIABLE}=0 installs without them, on the plain TensorFlow reference."
        ) from error


class BuildWithOps(build_py):
    """Copies the Python files, then builds the ops next to them (in place for `pip install -e`).

    Programs that need a checkout are left out.
    """

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        found = super().find_package_modules(package, package_dir)
        if package != TOOLS_PACKAGE:
            return found
        return [entry for entry in found if not PROGRAMS["needs_checkout"](entry[1])]

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            if builds_ops():
                build_ops(ROOT / OPS_PACKAGE)
            return
        target = Path(self.build_lib) / OPS_PACKAGE
        for name in BUILT_FILES:  # Of an earlier build in the same folder.
            (target / name).unlink(missing_ok=True)
        if builds_ops():
            build_ops(target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        if builds_ops() and not self.editable_mode:
            target = Path(self.build_lib) / OPS_PACKAGE
            outputs += [str(target / Path(file).name) for file in files_to_build()]
        return outputs


class PlatformWheel(bdist_wheel):
    """Tags a wheel that holds the ops with the platform, for any Python 3."""

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return ("py3", "none", platform)


class DistributionWithOps(Distribution):
    """A distribution with compiled code exactly when the ops are built."""

    def has_ext_modules(self) -> bool:
        return builds_ops()


setup(
    name="bert-tf",
    version="0.1.0",
    description="BERT for TensorFlow and Keras 3: pre-training, fine-tuning, serving, fast ops.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=[
        *find_packages(include=["bert_tf", "bert_tf.*"]),
        TOOLS_PACKAGE,
        *(f"{TOOLS_PACKAGE}.{package}" for package in PACKAGES_OF_TOOLS),
    ],
    package_dir={TOOLS_PACKAGE: "tools"},
    entry_points={"console_scripts": ["bert-tf = bert_tf.command:main"]},
    package_data={"bert_tf": ["**/*.html", "**/*.json", "**/*.txt"]},
    exclude_package_data={
        "bert_tf.ops": list(BUILT_FILES),
        "bert_tf": [f"ops/{name}" for name in BUILT_FILES if name.endswith(".json")],
    },
    install_requires=[
        "tensorflow>=2.19,<2.22",
        "tensorflow-text>=2.19,<2.22",
        "keras>=3.10",
        "keras-nlp",
        "absl-py",
        "numpy",
        "safetensors",
        "tqdm",
    ],
    extras_require={
        "test": [
            "aiohttp",
            "apache-beam>=2.77,<3",
            "clang-format~=23.1",
            "datasets",
            "matplotlib",
            "nbformat",
            "pandas",
            "pdoc",
            "polars",
            "prometheus-client",
            "pyarrow",
            "pytest",
            "pytest-xdist",
            "ruff~=0.17.0",
            "scikit-learn",
            "seqeval",
        ],
        # What the full suite compares with.
        "full": [
            "huggingface_hub",
            "ipykernel",
            "nbclient",
            "onnxruntime",
            "openvino",
            "python-crfsuite",
            "rouge-score",
            "sacrebleu>=2.6,<3",
            "selenium",
            "sentence-transformers",
            "tensorflow-serving-api",
            "tf2onnx",
            "torch",
            "transformers",
        ],
        "beam": ["apache-beam>=2.77,<3"],
        "serve": ["aiohttp", "prometheus-client"],
        "evaluate": ["matplotlib", "scikit-learn"],
        "generation": ["rouge-score", "sacrebleu>=2.6,<3"],
        "notebooks": [
            "aiohttp",
            "ipykernel",
            "matplotlib",
            "nbclient",
            "nbformat",
            "pandas",
            "prometheus-client",
            "scikit-learn",
            "seqeval",
        ],
        "onnx": ["onnxruntime", "tf2onnx"],
        "serving": ["tensorflow-serving-api"],
        "tagging": ["seqeval"],
        "benchmark": [
            "ctranslate2",
            "matplotlib",
            "nncf",
            "onnx",
            "onnxruntime",
            "openvino",
            "torch",
            "transformers",
        ],
        "tpu": ["tensorflow-tpu==2.19.1"],
    },
    classifiers=[
        "Operating System :: POSIX :: Linux",
        "Programming Language :: C++",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    cmdclass={"build_py": BuildWithOps, "bdist_wheel": PlatformWheel},
    distclass=DistributionWithOps,
    zip_safe=False,
)
