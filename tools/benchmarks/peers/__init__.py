"""The table of the peers, which have one file each.

A peer's file, and so its framework, is imported only in the peer's worker process.
"""

import dataclasses
import importlib
import importlib.util


@dataclasses.dataclass(frozen=True)
class Entry:
    """The class of a peer, its jobs and its packages.

    `packages` are import names and the names for `pip install`; `job_packages` are those that a job
    needs in addition.
    """

    module: str
    class_name: str
    packages: dict[str, str]
    jobs: tuple[str, ...]
    job_packages: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def missing(self, job: str) -> list[str]:
        """Returns the packages for a job that are not installed, by their `pip install` names."""
        packages = {**self.packages, **self.job_packages.get(job, {})}
        return [
            pip_name
            for import_name, pip_name in packages.items()
            if importlib.util.find_spec(import_name) is None
        ]

    def load(self) -> type:
        module = importlib.import_module(f"{__name__}.{self.module}")
        return getattr(module, self.class_name)


OURS = "bert_tf"
OURS_BFLOAT16 = "bert_tf_bfloat16"
OURS_XLA = "bert_tf_xla"

# The variants that the job `xla` compares.
NO_XLA = "no XLA"
XLA_NATIVE = "XLA, native ops"  # with the lowerings in custom_ops/xla
XLA_PADDED = "XLA, native ops, padded"  # with TensorFlow's attention on padded batches
XLA_TENSORFLOW = "XLA, plain TensorFlow"
XLA_VARIANTS = (NO_XLA, XLA_NATIVE, XLA_PADDED, XLA_TENSORFLOW)

_TORCH = {"torch": "torch", "transformers": "transformers"}

PEERS = {
    OURS: Entry(
        "ours",
        "Ours",
        {},
        (
            "inference",
            "inference_int8",
            "training",
            "ops",
            "matmul",
            "matmul_int8",
            "tokenizer",
            "latency",
            "memory",
            "weights",
        ),
    ),
    # bert_tf on a GPU.
    OURS_BFLOAT16: Entry("ours_bfloat16", "OursBFloat16", {}, ("gpu_training",)),
    # bert_tf compiled by XLA.
    OURS_XLA: Entry("ours_xla", "OursXla", {}, ("xla",)),
    "keras_hub": Entry(
        "keras_hub", "KerasHub", {"keras_hub": "keras-hub"}, ("inference", "training", "memory")
    ),
    "tensorflow": Entry("tensorflow_2d", "TensorFlow2D", {}, ("inference", "matmul")),
    "pytorch": Entry("pytorch", "PyTorch", _TORCH, ("inference", "training", "matmul", "latency")),
    "torch_compile": Entry(
        "torch_compile", "TorchCompile", _TORCH, ("inference", "training", "ops")
    ),
    "onnxruntime": Entry(
        "onnxruntime",
        "OnnxRuntime",
        {**_TORCH, "onnx": "onnx", "onnxruntime": "onnxruntime"},
        ("inference", "inference_int8", "latency"),
    ),
    "openvino": Entry(
        "openvino",
        "OpenVino",
        {**_TORCH, "onnx": "onnx", "openvino": "openvino"},
        ("inference", "inference_int8"),
        {"inference_int8": {"nncf": "nncf"}},
    ),
    "ctranslate2": Entry(
        "ctranslate2", "CTranslate2", {**_TORCH, "ctranslate2": "ctranslate2"}, ("inference",)
    ),
    "hf_tokenizers": Entry(
        "hf_tokenizers", "HuggingFaceTokenizers", {"tokenizers": "tokenizers"}, ("tokenizer",)
    ),
    "tensorflow_text": Entry(
        "tensorflow_text", "TensorFlowText", {"tensorflow_text": "tensorflow-text"}, ("tokenizer",)
    ),
    # The limits of the machine, measured in the same rounds.
    "machine": Entry(
        "machine",
        "Machine",
        {},
        ("matmul", "matmul_int8", "copy", "multiply_adds", "multiply_adds_int8", "read"),
    ),
}


def of_job(job: str) -> list[str]:
    """Returns the names of the peers that support `job`, without bert_tf and the machine."""
    return [
        name for name, entry in PEERS.items() if job in entry.jobs and name not in (OURS, "machine")
    ]
