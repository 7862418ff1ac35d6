"""Who is compared: one file a peer, and this table of them.

A peer's file is imported in its own worker process only, and its framework only there.
"""

import dataclasses
import importlib
import importlib.util


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where a peer is and what it needs.

    Attributes:
        module: File in this folder.
        class_name: The `Peer` in it.
        packages: import name -> what `pip install` calls it.
        jobs: What it takes part in.
        job_packages: Job -> the packages that it needs besides.
    """

    module: str
    class_name: str
    packages: dict[str, str]
    jobs: tuple[str, ...]
    job_packages: dict[str, dict[str, str]] = dataclasses.field(default_factory=dict)

    def missing(self, job: str) -> list[str]:
        """The packages for a job that are not installed, as `pip install` calls them."""
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
    # Not a rival: bert_tf on a GPU.
    OURS_BFLOAT16: Entry("ours_bfloat16", "OursBFloat16", {}, ("gpu_training",)),
    # Nor that: bert_tf compiled by XLA.
    OURS_XLA: Entry("ours_xla", "OursXla", {}, ("xla",)),
    "keras_hub": Entry(
        "keras_hub", "KerasHub", {"keras_hub": "keras-hub"}, ("inference", "training", "memory")
    ),
    "tensorflow": Entry("tensorflow_2d", "TensorFlow2D", {}, ("inference", "matmul")),
    "pytorch": Entry(
        "pytorch",
        "PyTorch",
        {**_TORCH, "tokenizers": "tokenizers"},
        ("inference", "training", "matmul", "latency"),
    ),
    "torch_compile": Entry(
        "torch_compile", "TorchCompile", _TORCH, ("inference", "training", "ops")
    ),
    "onnxruntime": Entry(
        "onnxruntime",
        "OnnxRuntime",
        {**_TORCH, "onnx": "onnx", "onnxruntime": "onnxruntime", "tokenizers": "tokenizers"},
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
    # Not a rival: what the machine can do at most, measured in the same rounds.
    "machine": Entry(
        "machine",
        "Machine",
        {},
        ("matmul", "matmul_int8", "copy", "multiply_adds", "multiply_adds_int8", "read"),
    ),
}


def of_job(job: str) -> list[str]:
    """The peers that take part in `job`, without ours and the machine."""
    return [
        name for name, entry in PEERS.items() if job in entry.jobs and name not in (OURS, "machine")
    ]
