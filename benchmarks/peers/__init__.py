"""The table of the peers, which have one file each.

A peer's file, and so its framework, is imported only in the peer's worker process.
"""

import dataclasses
import importlib.util
import pkgutil
import subprocess

_PRINT_ABSENT = (
    "import importlib.util, sys; "
    "print(*[name for name in sys.argv[1:] if importlib.util.find_spec(name) is None])"
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """The class of a peer, the jobs in which it can be compared with bert_tf, and its packages.

    `path` is "module:class" in this package. `packages` are import names; `job_packages` are those
    that a job needs in addition. `environment` has variables of the worker's environment. A peer
    with `requirements`, for `pip install`, is measured only on request, and may need an environment
    of its own.
    """

    path: str
    jobs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    job_packages: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    requirements: tuple[str, ...] = ()

    def missing(self, job: str, python: str | None = None) -> list[str]:
        """Returns the packages for a job that are not installed, by their `pip install` names.

        `python` is the interpreter of another environment; None: this one.
        """
        packages = (*self.packages, *self.job_packages.get(job, ()))
        if python is None:
            absent = [name for name in packages if importlib.util.find_spec(name) is None]
        else:
            command = [python, "-c", _PRINT_ABSENT, *packages]
            absent = subprocess.run(command, capture_output=True, check=True, text=True).stdout
            absent = absent.split()
        return [name.replace("_", "-") for name in absent]

    def load(self) -> type:
        return pkgutil.resolve_name(f"{__name__}.{self.path}")


OURS = "bert_tf"
BASELINE = "baseline"  # bert_tf of another checkout
OURS_BFLOAT16 = "bert_tf_bfloat16"
OURS_XLA = "bert_tf_xla"
OURS_PIPELINE = "bert_tf_pipeline"

# The variants that the job `xla` compares.
NO_XLA = "no XLA"
XLA_NATIVE = "XLA, native ops"  # with the lowerings in custom_ops/xla
XLA_PADDED = "XLA, native ops, padded"  # with TensorFlow's attention on padded batches
XLA_TENSORFLOW = "XLA, plain TensorFlow"
XLA_VARIANTS = (NO_XLA, XLA_NATIVE, XLA_PADDED, XLA_TENSORFLOW)

_TORCH = ("torch", "transformers")

_FLOAT = ("inference", "inference_bfloat16")
_INFERENCE = (*_FLOAT, "inference_int8")
_LATENCY = ("latency", "latency_int8")
_ENCODE = ("encode", "encode_int8")
_GENERATION = ("generation", "generation_bfloat16")
_MATMUL = ("matmul", "matmul_bfloat16")
_TRAINING = ("training", "training_bfloat16")
_BASELINE_JOBS = (
    *_INFERENCE,
    *_LATENCY,
    *_ENCODE,
    *_TRAINING,
    *_MATMUL,
    "matmul_int8",
    "tokenizer",
)

# The values are those of zentf_env_setup.sh in amd/ZenDNN-tensorflow-plugin. Without KMP_BLOCKTIME,
# idle threads of OpenMP spin for 200 ms after an op, on the cores that TensorFlow's threads need.
_ZENTF_ENVIRONMENT = {
    "TF_ENABLE_ZENDNN_OPTS": "1",
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "USE_ZENDNN_MATMUL_DIRECT": "1",
    "ZENDNNL_MATMUL_ALGO": "1",
    "KMP_BLOCKTIME": "1",
}
# The values are those of zentorch_env_setup.sh in amd/ZenDNN-pytorch-plugin.
_ZENTORCH_ENVIRONMENT = {"TORCHINDUCTOR_FREEZING": "1", "ZENDNNL_MATMUL_ALGO": "1"}

PEERS = {
    OURS: Entry("ours:Ours"),
    BASELINE: Entry("ours:Ours", _BASELINE_JOBS),
    OURS_BFLOAT16: Entry("ours_bfloat16:OursBFloat16"),  # on a GPU
    OURS_XLA: Entry("ours_xla:OursXla"),
    OURS_PIPELINE: Entry("ours_pipeline:OursPipeline"),
    "machine": Entry("machine:Machine"),  # the limits of the machine, in the same rounds
    "keras_hub": Entry("keras_hub:KerasHub", (*_FLOAT, *_TRAINING, "memory"), ("keras_hub",)),
    "tensorflow": Entry("tensorflow_2d:TensorFlow2D", (*_FLOAT, *_MATMUL)),
    "pytorch": Entry(
        "pytorch:PyTorch", (*_FLOAT, *_TRAINING, *_MATMUL, *_GENERATION, "latency", "calls"), _TORCH
    ),
    "torch_compile": Entry("torch_compile:TorchCompile", (*_FLOAT, *_TRAINING, "ops"), _TORCH),
    "onnxruntime": Entry(
        "onnxruntime:OnnxRuntime",
        ("inference", "inference_int8", *_LATENCY),
        (*_TORCH, "onnx", "onnxruntime"),
    ),
    "openvino": Entry(
        "openvino:OpenVino",
        (*_INFERENCE, *_LATENCY),
        (*_TORCH, "onnx", "openvino"),
        dict.fromkeys(("inference_int8", "latency_int8"), ("nncf",)),
    ),
    "ctranslate2": Entry("ctranslate2:CTranslate2", ("inference",), (*_TORCH, "ctranslate2")),
    "zentf": Entry(
        "zentf:ZenTF",
        _FLOAT,
        ("tensorflow", "zentf", "safetensors"),
        environment=_ZENTF_ENVIRONMENT,
        requirements=("tensorflow==2.21.*", "zentf==2.21.0.0", "safetensors"),
    ),
    "zentorch": Entry(
        "zentorch:ZenTorch",
        _FLOAT,
        (*_TORCH, "zentorch"),
        environment=_ZENTORCH_ENVIRONMENT,
        requirements=("torch==2.13.*", "zentorch==2.13.0.2", "transformers"),
    ),
    "st_onnxruntime": Entry(
        "sentence_transformers:OnOnnxRuntime",
        _ENCODE,
        ("sentence_transformers", "optimum", "onnxruntime"),
        requirements=("sentence-transformers[onnx]",),
    ),
    "st_openvino": Entry(
        "sentence_transformers:OnOpenVino",
        _ENCODE,
        ("sentence_transformers", "optimum", "openvino"),
        {"encode_int8": ("nncf",)},
        requirements=("sentence-transformers[openvino]>=6.2", "nncf"),
    ),
    "fastembed": Entry(
        "fastembed:FastEmbed",
        ("encode",),
        (*_TORCH, "onnx", "fastembed"),
        requirements=("fastembed", "torch", "transformers", "onnx"),
    ),
    "llama_cpp": Entry(
        "llama_cpp:LlamaCpp",
        _ENCODE,
        ("llama_cpp", "gguf", "safetensors"),
        requirements=("llama-cpp-python", "gguf", "safetensors"),
    ),
    "hf_tokenizers": Entry("hf_tokenizers:HuggingFaceTokenizers", ("tokenizer",), ("tokenizers",)),
    "flash_tokenizer": Entry(
        "flash_tokenizer:FlashTokenizer",
        ("tokenizer",),
        ("flash_tokenizer",),
        requirements=("flash-tokenizer",),
    ),
    "tensorflow_text": Entry(
        "tensorflow_text:TensorFlowText", ("tokenizer",), ("tensorflow_text",)
    ),
}


def of_job(job: str) -> list[str]:
    """Returns the names of the other libraries that can be compared with bert_tf in `job`."""
    return [name for name, entry in PEERS.items() if job in entry.jobs and name != BASELINE]
