"""The table of the peers, which have one file each.

A peer's file, and so its framework, is imported only in the peer's worker process.
"""

import dataclasses
import importlib.util
import pkgutil


@dataclasses.dataclass(frozen=True)
class Entry:
    """The class of a peer, the jobs in which it can be compared with bert_tf, and its packages.

    `path` is "module:class" in this package. `packages` are import names; `job_packages` are those
    that a job needs in addition.
    """

    path: str
    jobs: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    job_packages: dict[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)

    def missing(self, job: str) -> list[str]:
        """Returns the packages for a job that are not installed, by their `pip install` names."""
        packages = (*self.packages, *self.job_packages.get(job, ()))
        return [
            name.replace("_", "-") for name in packages if importlib.util.find_spec(name) is None
        ]

    def load(self) -> type:
        return pkgutil.resolve_name(f"{__name__}.{self.path}")


OURS = "bert_tf"
BASELINE = "baseline"  # bert_tf of another checkout
OURS_BFLOAT16 = "bert_tf_bfloat16"
OURS_XLA = "bert_tf_xla"

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
_MATMUL = ("matmul", "matmul_bfloat16")
_TRAINING = ("training", "training_bfloat16")
_BASELINE_JOBS = (*_INFERENCE, *_LATENCY, *_TRAINING, *_MATMUL, "matmul_int8", "tokenizer")

PEERS = {
    OURS: Entry("ours:Ours"),
    BASELINE: Entry("ours:Ours", _BASELINE_JOBS),
    OURS_BFLOAT16: Entry("ours_bfloat16:OursBFloat16"),  # on a GPU
    OURS_XLA: Entry("ours_xla:OursXla"),
    "machine": Entry("machine:Machine"),  # the limits of the machine, in the same rounds
    "keras_hub": Entry("keras_hub:KerasHub", (*_FLOAT, "training", "memory"), ("keras_hub",)),
    "tensorflow": Entry("tensorflow_2d:TensorFlow2D", (*_FLOAT, *_MATMUL)),
    "pytorch": Entry("pytorch:PyTorch", (*_FLOAT, *_TRAINING, *_MATMUL, "latency"), _TORCH),
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
    "hf_tokenizers": Entry("hf_tokenizers:HuggingFaceTokenizers", ("tokenizer",), ("tokenizers",)),
    "tensorflow_text": Entry(
        "tensorflow_text:TensorFlowText", ("tokenizer",), ("tensorflow_text",)
    ),
}


def of_job(job: str) -> list[str]:
    """Returns the names of the other libraries that can be compared with bert_tf in `job`."""
    return [name for name, entry in PEERS.items() if job in entry.jobs and name != BASELINE]
