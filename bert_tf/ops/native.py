"""Loads the native ops, checks that they match the running TensorFlow, and selects the backend.

`make ops` or pip puts the shared objects into the directory of this file: the kernels once, and the
rest into a folder for each minor version of TensorFlow, such as `tensorflow_2.21`, because
TensorFlow's C++ ABI is stable only within a minor version. That folder holds:
  _bert_tf_ops.so       The ops; _build_info.json says for what and with what it was built.
  _bert_tf_xla.so       Lets XLA compile the ops on a CPU, if this TensorFlow has the headers.
  _bert_tf_gpu_ops.so   GPU kernels, if they were built (docs/performance/gpu.md).
  _bert_tf_gpu_xla.so   Lets XLA compile them.
They are loaded once per process, when an op is first used; those of the GPU only if one is visible.

The environment variable `BERT_TF_OPS` selects the backend, and `backend()` overrides it for a block
of code:
  auto       The native op if it is available, else the reference implementation (the default).
  native     The native op, or an error if it is not available. The tests use this.
  reference  The reference implementation, in stock TensorFlow ops.
"""

import contextlib
import contextvars
import dataclasses
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import tensorflow as tf

BACKEND_VARIABLE = "BERT_TF_OPS"
BACKENDS = ("auto", "native", "reference")

_DIRECTORY = Path(__file__).resolve().parent
_FOLDER_PREFIX = "tensorflow_"
_MINOR_VERSION = ".".join(tf.__version__.split(".")[:2])
_FOLDER = _DIRECTORY / f"{_FOLDER_PREFIX}{_MINOR_VERSION}"
_LIBRARY_PATH = _FOLDER / "_bert_tf_ops.so"
_BUILD_INFO_PATH = _FOLDER / "_build_info.json"
_XLA_LIBRARY_PATH = _FOLDER / "_bert_tf_xla.so"
_GPU_LIBRARY_PATH = _FOLDER / "_bert_tf_gpu_ops.so"
_GPU_XLA_LIBRARY_PATH = _FOLDER / "_bert_tf_gpu_xla.so"

_LEAST_COMPUTE_CAPABILITY = (8, 0)  # of the GPU kernels

_TPU_STRATEGIES = (tf.distribute.TPUStrategy, tf.distribute.experimental.TPUStrategy)

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """The result of loading the native ops."""

    library: ModuleType | None
    reason: str  # why the ops are used or not used
    suits_auto: bool = False  # whether the backend "auto" uses the native ops
    has_xla_lowerings: bool = False
    has_gpu_kernels: bool = False


_lock = threading.Lock()
_loaded: _Loaded | None = None
_scope: contextvars.ContextVar[str | None] = contextvars.ContextVar("backend", default=None)


def library() -> ModuleType | None:
    """Returns the module of the native ops (`bert_tf_fused_bias_gelu`, …), or None."""
    return _load().library


def use_native(runs_on_gpu: bool = True) -> bool:
    """Returns whether an op that is called now uses its native implementation.

    Inside `tf.function` this is evaluated once, when the function is traced.

    Args:
        runs_on_gpu: Whether the op also has a GPU kernel. If a GPU is visible, an op without one
            uses the reference implementation even if the native ops are requested, because its
            tensors and variables are on the GPU.

    Raises:
        RuntimeError: If the native ops are requested and are not available.
        ValueError: If `BERT_TF_OPS` is none of "auto", "native" and "reference".
    """
    requested = _requested_backend()
    if requested == "reference":
        return False
    loaded = _load()
    if requested == "native":
        if loaded.library is None:
            raise RuntimeError(
                f"The native ops must be available if {BACKEND_VARIABLE}=native or "
                f"`backend('native')` requests them. Received: {loaded.reason}. "
                "Build them with `make ops`, or with `pip install .` if Bazel is on PATH, "
                f"or set {BACKEND_VARIABLE}=auto."
            )
        return runs_on_gpu or not _visible_gpus()
    return loaded.suits_auto and not is_on_tpu()


def is_on_tpu() -> bool:
    """Returns whether the code runs on a TPU: XLA compiles all of it, without custom kernels."""
    return isinstance(tf.distribute.get_strategy(), _TPU_STRATEGIES)


def compiles_under_xla() -> bool:
    """Returns whether XLA can compile the native ops: on a CPU or a GPU whose lowerings are built.

    If it cannot, functions for XLA must be traced under `backend("reference")`.
    """
    return _load().has_xla_lowerings and not is_on_tpu()


def has_gpu_kernels() -> bool:
    """Returns whether a GPU is visible and the GPU kernels are loaded for it."""
    return _load().has_gpu_kernels


def active_backend() -> str:
    """Returns the backend that an op would use now: "native" or "reference".

    Raises:
        RuntimeError: If the native ops are requested and are not available.
        ValueError: If `BERT_TF_OPS` is none of "auto", "native" and "reference".

    Example:
        >>> with bert_tf.ops.backend("reference"):
        ...     bert_tf.ops.active_backend()
        'reference'
    """
    return "native" if use_native() else "reference"


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Selects the implementation of the ops inside the block and overrides `BERT_TF_OPS`.

    It affects the calling thread and the functions that are traced in it. A strategy with several
    replicas traces in other threads: set `BERT_TF_OPS` for these.

    Args:
        name: "native", "reference" or "auto".

    Raises:
        ValueError: If `name` is something else.

    Example:
        >>> with bert_tf.ops.backend("reference"):
        ...     y = bert_tf.ops.fused_bias_gelu(tf.ones([2, 4]), tf.zeros([4]))
    """
    if name not in BACKENDS:
        raise ValueError(f"`name` must be one of {', '.join(BACKENDS)}. Received: name={name!r}")
    token = _scope.set(name)
    try:
        yield
    finally:
        _scope.reset(token)


@tf.autograph.experimental.do_not_convert  # AutoGraph cannot convert the context manager
def call_reference(op: Callable, *args, **kwargs):
    """Calls an op under `backend("reference")`."""
    with backend("reference"):
        return op(*args, **kwargs)


def _visible_gpus() -> list[tf.config.PhysicalDevice]:
    return tf.config.get_visible_devices("GPU")


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


def _requested_backend() -> str:
    """Returns the innermost `backend()` of this thread, or else the value of `BERT_TF_OPS`."""
    name = _scope.get() or os.environ.get(BACKEND_VARIABLE) or "auto"
    if name not in BACKENDS:
        raise ValueError(
            f"`{BACKEND_VARIABLE}` must be one of {', '.join(BACKENDS)}. "
            f"Received: {BACKEND_VARIABLE}={name!r}"
        )
    return name


def _load() -> _Loaded:
    """Loads the shared object once per process and logs the result."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                result = _try_load()
                level = logging.INFO if result.suits_auto else logging.WARNING
                chosen = "native" if result.suits_auto else "reference (stock TensorFlow)"
                _logger.log(level, "bert_tf ops: %s, because %s.", chosen, result.reason)
                _loaded = result
    return _loaded


def _try_load() -> _Loaded:
    if not _LIBRARY_PATH.is_file():
        return _Loaded(None, _why_there_is_no_library())
    try:
        module = tf.load_op_library(str(_LIBRARY_PATH))
    except (tf.errors.OpError, OSError) as error:
        return _Loaded(
            None, f"{_LIBRARY_PATH} could not be loaded ({error}); build it again with `make ops`"
        )
    missing_xla = _load_addition(_XLA_LIBRARY_PATH)
    gpus = _visible_gpus()
    if gpus:
        # `auto` does not use the GPU kernels: under XLA, plain TensorFlow trains faster
        # (docs/performance/gpu.md).
        missing = _unfit_gpu(gpus) or _load_addition(_GPU_LIBRARY_PATH)
        # Loaded after the kernels, which the handlers of the lowerings call.
        missing_xla = missing or _load_addition(_GPU_XLA_LIBRARY_PATH)
        return _Loaded(
            module,
            f"a GPU is visible, and {missing or 'with XLA stock TensorFlow trains faster there'} "
            f"({BACKEND_VARIABLE}=native uses the native ops anyway)",
            has_xla_lowerings=not missing_xla,
            has_gpu_kernels=not missing,
        )
    xla = f"XLA uses the reference ({missing_xla})" if missing_xla else "XLA can compile the ops"
    return _Loaded(
        module,
        f"{_LIBRARY_PATH.name} is built for TensorFlow {_MINOR_VERSION}; {xla}",
        suits_auto=True,
        has_xla_lowerings=not missing_xla,
    )


def _why_there_is_no_library() -> str:
    slower = "the results are the same, but computing them is slower and needs more memory"
    folders = _DIRECTORY.glob(f"{_FOLDER_PREFIX}*/{_LIBRARY_PATH.name}")
    versions = sorted(path.parent.name.removeprefix(_FOLDER_PREFIX) for path in folders)
    if not versions:
        return (
            f"the native ops are not built; {slower}. `make ops` builds them, and so does "
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
