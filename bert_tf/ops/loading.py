"""Loads the native ops and checks that they match the running TensorFlow.

`make ops` or pip puts the shared objects into the directory of this file: the kernels once, and the
rest into a folder for each minor version of TensorFlow, such as `tensorflow_2.21`, because
TensorFlow's C++ ABI is stable only within a minor version. That folder holds:
  _bert_tf_ops.so       The ops; _build_info.json says for what and with what it was built.
  _bert_tf_xla.so       Lets XLA compile the ops on a CPU, if this TensorFlow has the headers and
                        `make ops ALL=1` built it.
  _bert_tf_gpu_ops.so   The same for a GPU (docs/performance/gpu.md).
  _bert_tf_gpu_xla.so   Lets XLA compile them.
They are loaded once per process, when an op is first used; those of the GPU only if one is visible.
"""

import contextlib
import ctypes
import dataclasses
import importlib.util
import logging
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import tensorflow as tf

_DIRECTORY = Path(__file__).resolve().parent
_FOLDER_PREFIX = "tensorflow_"
_MINOR_VERSION = ".".join(tf.__version__.split(".")[:2])
_FOLDER = _DIRECTORY / f"{_FOLDER_PREFIX}{_MINOR_VERSION}"
_LIBRARY_PATH = _FOLDER / "_bert_tf_ops.so"
_BUILD_INFO_PATH = _FOLDER / "_build_info.json"
_XLA_LIBRARY_PATH = _FOLDER / "_bert_tf_xla.so"
_GPU_LIBRARY_PATH = _FOLDER / "_bert_tf_gpu_ops.so"
_GPU_XLA_LIBRARY_PATH = _FOLDER / "_bert_tf_gpu_xla.so"

_FIRST_GPU = "GPU:0"
_LEAST_COMPUTE_CAPABILITY = (8, 0)  # of the GPU kernels

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(frozen=True)
class Loaded:
    """The result of loading the native ops."""

    library: ModuleType | None
    reason: str  # why the ops are used or not used
    has_xla_lowerings: bool = False
    sees_gpu: bool = False
    has_gpu_kernels: bool = False  # and they run on the GPU that is visible


_lock = threading.Lock()
loaded: Loaded | None = None


def _unfit_gpu(gpus: list[tf.config.PhysicalDevice]) -> str:
    """Returns why the GPU kernels cannot run on these GPUs, or "" if they can."""
    for gpu in gpus:
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        if capability is not None and capability < _LEAST_COMPUTE_CAPABILITY:
            received, needed = (
                "{}.{}".format(*each) for each in (capability, _LEAST_COMPUTE_CAPABILITY)
            )
            return (
                f"it has compute capability {received}, but the GPU kernels need at least {needed}"
            )
    return ""


def load() -> Loaded:
    """Loads the shared object once per process and logs the result."""
    global loaded
    if loaded is None:
        with _lock:
            if loaded is None:
                result = _try_load()
                works = result.has_gpu_kernels if result.sees_gpu else result.library is not None
                level = logging.INFO if works else logging.WARNING
                chosen = "native" if works else "reference (stock TensorFlow)"
                _logger.log(level, "bert_tf ops: %s, because %s.", chosen, result.reason)
                loaded = result
    return loaded


def _try_load() -> Loaded:
    if not _LIBRARY_PATH.is_file():
        return Loaded(None, _why_there_is_no_library())
    try:
        module = tf.load_op_library(str(_LIBRARY_PATH))
    except (tf.errors.OpError, OSError) as error:
        return Loaded(
            None, f"{_LIBRARY_PATH} could not be loaded ({error}); build it again with `make ops`"
        )
    missing_xla = _load_addition(_XLA_LIBRARY_PATH)
    gpus = tf.config.get_visible_devices("GPU")
    if gpus:
        missing = _unfit_gpu(gpus) or _load_addition(_GPU_LIBRARY_PATH) or _why_not_on_gpu(module)
        missing_xla = missing or _load_addition(_GPU_XLA_LIBRARY_PATH)
        return Loaded(
            module,
            f"a GPU is visible, and {missing} (BERT_TF_OPS=native uses the native ops anyway)"
            if missing
            else "a GPU is visible, and its kernels run (`bert_tf.ops.describe()` says which)",
            has_xla_lowerings=not missing_xla,
            sees_gpu=True,
            has_gpu_kernels=not missing,
        )
    xla = (
        f"XLA uses the reference ({missing_xla}; `make ops ALL=1` builds it, and wheels have it)"
        if missing_xla
        else "XLA can compile the ops"
    )
    return Loaded(
        module,
        f"{_LIBRARY_PATH.name} is built for TensorFlow {_MINOR_VERSION}; {xla}",
        has_xla_lowerings=not missing_xla,
    )


def _why_not_on_gpu(module: ModuleType) -> str:
    """Runs a kernel on the first GPU; returns why it failed, or "" on success.

    The kernel is compiled now, or read from the cache, so all that the kernels need is there.
    """
    _open_nvrtc()
    x = np.linspace(-4, 4, 1024, dtype=np.float32).reshape(16, 64)
    expected = x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    with tf.init_scope():
        if not tf.executing_eagerly():
            return ""  # a program in the style of TensorFlow 1
        try:
            with tf.device(_FIRST_GPU):
                y = module.bert_tf_fused_bias_gelu(x, np.zeros(64, np.float32), approximate=True)
                is_right = np.allclose(y.numpy(), expected, atol=1e-5)
        except tf.errors.OpError as error:
            return error.message.splitlines()[0]
    return "" if is_right else "a kernel computes wrong numbers there"


def _open_nvrtc() -> None:
    """Opens the NVRTC that `pip install 'bert_tf[gpu]'` installs, where the ops look for it."""
    spec = importlib.util.find_spec("nvidia")
    folders = map(Path, spec.submodule_search_locations if spec else ())
    paths = [path for folder in folders for path in folder.glob("*/lib/libnvrtc.so.*")]
    for path in sorted(paths, key=lambda path: path.name):  # that of CUDA 12 first, as TensorFlow's
        with contextlib.suppress(OSError):
            ctypes.CDLL(str(path))
            return


def _why_there_is_no_library() -> str:
    slower = "the results are the same, but computing them is slower and needs more memory"
    folders = _DIRECTORY.glob(f"{_FOLDER_PREFIX}*/{_LIBRARY_PATH.name}")
    versions = sorted(path.parent.name.removeprefix(_FOLDER_PREFIX) for path in folders)
    if not versions:
        return (
            f"the native ops are not built; {slower}. The wheels for Linux, `*_x86_64.whl` and "
            "`*_aarch64.whl`, have them. In a checkout, `make ops` builds them, and so does "
            "`pip install .` if Bazel is on PATH"
        )
    return (
        f"the native ops are built for TensorFlow {', '.join(versions)}, but this is TensorFlow "
        f"{tf.__version__}; {slower}. Install one of these versions, for example "
        f"with `pip install 'tensorflow=={versions[-1]}.*' 'tensorflow-text=={versions[-1]}.*'`, "
        "or build the ops for this one with `make ops`"
    )


def _load_addition(path: Path) -> str:
    """Loads a shared object that extends the ops; returns why it failed, or "" on success."""
    if not path.is_file():
        return f"{path.name} is not built"
    try:
        tf.load_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        return f"{path.name} could not be loaded: {error}"
    return ""
