"""Installs bert_tf and, where Bazel is on PATH, builds the custom ops into it.

The ops fit one minor version of TensorFlow: the one of the environment that builds them. An
isolated build (pip's default) takes the newest that setup() allows; to build for the version you
have, install it first and run `pip install --no-build-isolation .`.

BERT_TF_BUILD_OPS says which ops are installed:
  auto   Those that are built now, if Bazel is on PATH (the default).
  1      The same, but without Bazel it is an error.
  0      None.
  a folder
         Those that custom_ops/build.py has put there, for as many versions of TensorFlow as there
         are. `make wheel` uses this.
"""

from __future__ import annotations

import os
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
from custom_ops import build  # noqa: E402

OPS_PACKAGE = Path("bert_tf") / "ops"
BUILT_FILES = ("_bert_tf_kernels.so", "tensorflow_*/*")  # in OPS_PACKAGE
BUILD_VARIABLE = "BERT_TF_BUILD_OPS"


def choice() -> str:
    """What BERT_TF_BUILD_OPS says: 0, 1 or a folder."""
    value = os.environ.get(BUILD_VARIABLE, "auto")
    if value not in ("auto", "0", "1") and not built_files(Path(value)):
        raise SetupError(
            f"Expected {BUILD_VARIABLE} to be auto, 0, 1 or a folder in which custom_ops/build.py "
            f"has built. Received: {BUILD_VARIABLE}={value!r}"
        )
    if value == "1" and configure.find_bazel() is None:
        raise SetupError(
            f"Expected Bazel on PATH because of {BUILD_VARIABLE}=1. Install `bazel` or `bazelisk`."
        )
    if value == "auto":
        return "0" if configure.find_bazel() is None else "1"
    return value


def built_files(folder: Path) -> list[str]:
    """The files that a build has put into `folder`, relative to it."""
    found = [path for pattern in BUILT_FILES for path in folder.glob(pattern)]
    return sorted(str(path.relative_to(folder)) for path in found)


def build_ops(target: Path) -> None:
    """Builds the ops for this interpreter's TensorFlow into `target`."""
    try:
        # pip's isolated builds find TensorFlow through PYTHONPATH.
        build.build(target, python_path=os.environ.get("PYTHONPATH"))
    except RuntimeError as error:
        raise SetupError(str(error)) from None
    except subprocess.CalledProcessError as error:
        raise ExecError(
            f"Bazel could not build the custom ops ({error}); its messages stand above. "
            f"{BUILD_VARIABLE}=0 installs without them, on the plain TensorFlow reference."
        ) from error


class BuildWithOps(build_py):
    """Copies the Python files, then builds the ops next to them (in place for `pip install -e`)."""

    def run(self) -> None:
        super().run()
        ops = choice()
        if self.editable_mode:
            if ops == "1":
                build_ops(ROOT / OPS_PACKAGE)
            return
        target = Path(self.build_lib) / OPS_PACKAGE
        for name in built_files(target):  # Of an earlier build in the same folder.
            (target / name).unlink()
        if ops == "1":
            build_ops(target)
        elif ops != "0":
            for name in built_files(Path(ops)):
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(Path(ops) / name, target / name)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        outputs = super().get_outputs(include_bytecode)
        if self.editable_mode:
            return outputs
        target = Path(self.build_lib) / OPS_PACKAGE
        return outputs + [str(target / name) for name in built_files(target)]


class PlatformWheel(bdist_wheel):
    """Tags a wheel that holds the ops with the platform, for any Python 3."""

    def write_wheelfile(self, wheelfile_base: str, **options: str) -> None:
        """Runs when all files are there: a wheel records their modes, which depend on the umask."""
        super().write_wheelfile(wheelfile_base, **options)
        for path in Path(self.bdist_dir).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return ("py3", "none", platform)


class DistributionWithOps(Distribution):
    """A distribution with compiled code exactly when it has the ops."""

    def has_ext_modules(self) -> bool:
        return choice() != "0"


setup(
    name="bert-tf",
    version="0.1.0",
    description="BERT for TensorFlow and Keras 3: pre-training, fine-tuning, serving, fast ops.",
    long_description=(ROOT / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "third_party/NOTICE.md"],
    python_requires=">=3.10",
    # bert_tf/tools is a link to tools/.
    packages=find_packages(include=["bert_tf", "bert_tf.*"]),
    entry_points={"console_scripts": ["bert-tf = bert_tf.tools.common.command:main"]},
    package_data={"bert_tf": ["**/*.css", "**/*.html", "**/*.js", "**/*.json", "**/*.txt"]},
    exclude_package_data={
        "bert_tf.ops": list(BUILT_FILES),
        "bert_tf": [f"ops/{name}" for name in BUILT_FILES],
    },
    install_requires=[
        "tensorflow>=2.19,<2.22",
        # No wheels for Windows: there models take token ids.
        'tensorflow-text>=2.19,<2.22; platform_system != "Windows"',
        "keras>=3.10",
        "absl-py",
        "numpy",
        "protobuf>=4.21.6",  # TensorFlow allows older ones, without `unknown_fields`
        "safetensors",
        "tqdm",
    ],
    # Least versions of aiohttp, grpcio and pyarrow: older ones have holes that a request or a table
    # of a stranger can use (SECURITY.md).
    # bert_tf/base/optional_packages.py names the extra of each package in errors, and
    # docs/installation.md says what the extras are for.
    extras_require={
        "test": [
            "ai-edge-litert",
            "aiohttp>=3.14.4",
            "apache-beam>=2.77,<3",
            "bm25s",
            "clang-format~=23.1",
            "datasets",
            "gensim",
            "grpcio-health-checking",
            "keras-nlp",
            "matplotlib",
            "nbformat",
            "pandas",
            "pdoc",
            "polars",
            "prometheus-client",
            "pyarrow>=14.0.1",
            "pytest",
            "pytest-xdist",
            "ruff~=0.17.0",
            "scikit-learn",
            "sentencepiece",
            "seqeval",
            "tensorflow-serving-api",
        ],
        # What the full suite compares with.
        "full": [
            "huggingface_hub",
            "ipykernel",
            "mteb",
            "nbclient",
            "nvidia-cuda-nvrtc-cu12>=12.9,<13",
            "onnxruntime",
            "openvino",
            "python-crfsuite",
            "pytrec-eval-terrier",
            "rouge-score",
            "sacrebleu>=2.6,<3",
            "selenium",
            "sentence-transformers",
            "tensorboard",
            "tf2onnx",
            "torch",
            "transformers",
        ],
        "augmentation": ["keras-nlp"],
        "baselines": ["gensim", "python-crfsuite"],
        "beam": ["apache-beam>=2.77,<3"],
        "chinese": ["jieba"],
        "evaluate": ["matplotlib", "scikit-learn"],
        "generation": ["rouge-score", "sacrebleu>=2.6,<3"],
        "gpu": ["tensorflow[and-cuda]>=2.19,<2.22"],
        "grpc": ["grpcio>=1.60", "grpcio-health-checking", "tensorflow-serving-api"],
        "hub": ["huggingface_hub"],
        "inspection": ["lit-nlp"],
        "litert": ["ai-edge-litert"],
        "mteb": ["mteb"],
        "notebooks": [
            "aiohttp>=3.14.4",
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
        "search": ["bm25s", "faiss-cpu", "scipy", "usearch"],
        "server": ["aiohttp>=3.14.4", "prometheus-client"],
        "serving": ["tensorflow-serving-api"],
        "tables": ["pandas", "pyarrow>=14.0.1"],
        "tagging": ["seqeval"],
        "benchmark": [
            "ctranslate2",
            "keras-nlp",
            "matplotlib",
            "nncf",
            "onnx",
            "onnxruntime",
            "openvino",
            "torch",
            "transformers",
        ],
        "tpu": ["tensorflow-tpu==2.19.1"],
        "unigram": ["sentencepiece"],
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
