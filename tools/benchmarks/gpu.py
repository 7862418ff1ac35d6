"""The GPU of this machine and the peak performance of its tensor cores."""

import dataclasses
import re

from bert_tf.errors import UserError

# Dense bfloat16 matmuls with float32 sums, in TFLOP/s, from NVIDIA's data sheets. (For newer GPUs
# they also print twice as much, with 2:4 sparsity.) The patterns are for the names that TensorFlow
# reports; the first that matches is used.
PEAK_TFLOPS = (
    (r"\bA100\b", 312.0),
    (r"\bA30\b", 165.0),
    (r"\bA10\b", 125.0),
    (r"\bL4\b", 121.0),
    (r"\bL40S\b", 362.0),
    (r"\bL40\b", 181.0),
    (r"\bH100 PCIe\b", 756.0),
    (r"\bH100 NVL\b", 835.0),
    (r"\bH100 80GB HBM3\b", 989.0),
    (r"\bH200\b", 989.0),
)


@dataclasses.dataclass(frozen=True)
class Gpu:
    """The name of a GPU and its peak in FLOP/s."""

    name: str
    peak_flops: float


def peak_tflops(name: str) -> float | None:
    """Returns the peak of a GPU in TFLOP/s, or None if the table does not have it."""
    return next((value for pattern, value in PEAK_TFLOPS if re.search(pattern, name)), None)


def require_gpu(peak: float | None = None) -> Gpu:
    """Returns the first GPU that TensorFlow sees.

    `peak` is its peak in TFLOP/s; None for that of the table.
    """
    import tensorflow as tf

    devices = tf.config.list_physical_devices("GPU")
    if not devices:
        built = "is built with CUDA" if tf.test.is_built_with_cuda() else "is built without CUDA"
        raise UserError(
            f"--device=gpu must be a GPU that TensorFlow sees. Received: none; TensorFlow "
            f"{tf.__version__} {built}. On a machine with an NVIDIA GPU, install "
            "`tensorflow[and-cuda]`; on others, use --device=cpu."
        )
    name = tf.config.experimental.get_device_details(devices[0]).get("device_name", "unknown")
    peak = peak if peak is not None else peak_tflops(name)
    if peak is None:
        raise UserError(
            "--peak_tflops must be set to the dense bfloat16 peak of this GPU, which is not in the "
            f"table. Received: {name!r}. Its data sheet has the peak (without sparsity)."
        )
    return Gpu(name, peak * 1e12)
