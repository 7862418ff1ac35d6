"""Finds the native ops, checks that they fit the running TensorFlow, and says which are used.

The shared object `_bert_tf_ops.so` lies beside this file, put there by `make ops` or by pip; so
does `_build_info.json`, what it was built for. It is loaded at the first use of an op, once a
process. With it comes `_bert_tf_xla.so`, where it is built: what lets XLA compile the ops on a CPU.
Where a GPU is visible `_bert_tf_gpu_ops.so` and `_bert_tf_gpu_xla.so` come too, if they were built
(docs/performance.md, "GPU").

`BERT_TF_OPS` picks the backend, and `backend()` overrides it for a block of code:
  auto       the native op where it is built and fits, else the reference (the default);
  native     the native op; an error where there is none (what the tests run with);
  reference  plain TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import tensorflow as tf

BACKEND_VARIABLE = "BERT_TF_OPS"
BACKENDS = ("auto", "native", "reference")

_DIRECTORY = Path(__file__).resolve().parent
_LIBRARY_PATH = _DIRECTORY / "_bert_tf_ops.so"
_BUILD_INFO_PATH = _DIRECTORY / "_build_info.json"
_XLA_LIBRARY_PATH = _DIRECTORY / "_bert_tf_xla.so"
_XLA_BUILD_INFO_PATH = _DIRECTORY / "_xla_build_info.json"
_GPU_LIBRARY_PATH = _DIRECTORY / "_bert_tf_gpu_ops.so"
_GPU_BUILD_INFO_PATH = _DIRECTORY / "_gpu_build_info.json"
_GPU_XLA_LIBRARY_PATH = _DIRECTORY / "_bert_tf_gpu_xla.so"
_GPU_XLA_BUILD_INFO_PATH = _DIRECTORY / "_gpu_xla_build_info.json"

_LEAST_COMPUTE_CAPABILITY = (8, 0)  # of the GPU kernels

# A TPU compiles the whole step with XLA and has no custom kernels.
_TPU_STRATEGIES = (tf.distribute.TPUStrategy, tf.distribute.experimental.TPUStrategy)

_logger = logging.getLogger("bert_tf")


@dataclasses.dataclass(frozen=True)
class _Loaded:
    """What came of loading: the op module, or None and the reason; whether `auto` may use it;
    whether XLA can compile it; and whether the GPU kernels came with it."""

    library: ModuleType | None
    reason: str
    suits_auto: bool
    has_xla_lowerings: bool = False
    has_gpu_kernels: bool = False


_lock = threading.Lock()
_loaded: _Loaded | None = None
_scopes = threading.local()


def library() -> ModuleType | None:
    """The module of the native ops (`bert_tf_fused_bias_gelu`, …), or None where there is none."""
    return _load().library


def build_info() -> dict:
    """What the native ops were built for and with, as `_build_info.json` says; {} without them."""
    return _read_build_info(_BUILD_INFO_PATH)


def use_native(runs_on_gpu: bool = True) -> bool:
    """Whether an op called here and now takes its native implementation.

    Inside `tf.function` this is asked once, when the function is traced.

    Args:
        runs_on_gpu: Whether the op has a GPU kernel too. One that has none takes the reference
            where a GPU is visible, even if the native ops are asked for: its tensors and variables
            live there.

    Raises:
        RuntimeError: the native ops are asked for and cannot be had.
        ValueError: `BERT_TF_OPS` is none of "auto", "native", "reference".
    """
    requested = _requested_backend()
    if requested == "reference":
        return False
    loaded = _load()
    if requested == "native":
        if loaded.library is None:
            raise RuntimeError(
                "Expected the native ops, because they were asked for by name "
                f"({BACKEND_VARIABLE}=native or backend('native')), but {loaded.reason}. "
                f"Build them with `make ops` or `pip install .` where Bazel is on PATH, "
                f"or set {BACKEND_VARIABLE}=auto."
            )
        return runs_on_gpu or not _visible_gpus()
    return loaded.suits_auto and not isinstance(tf.distribute.get_strategy(), _TPU_STRATEGIES)


def compiles_under_xla() -> bool:
    """Whether XLA can compile the native ops here: on a CPU or a GPU with their lowerings built.

    Where it cannot, what goes to XLA must be traced under `backend("reference")`.
    """
    return _load().has_xla_lowerings and not isinstance(
        tf.distribute.get_strategy(), _TPU_STRATEGIES
    )


def has_gpu_kernels() -> bool:
    """Whether a GPU is visible and the GPU kernels are loaded for it."""
    return _load().has_gpu_kernels


def active_backend() -> str:
    """ "native" or "reference": what an op called here and now would run on.

    Example:
        >>> with bert_tf.ops.backend("reference"):
        ...     bert_tf.ops.active_backend()
        'reference'
    """
    return "native" if use_native() else "reference"


@contextlib.contextmanager
def backend(name: str) -> Iterator[None]:
    """Picks the implementation of the ops called inside the block, whatever `BERT_TF_OPS` says.

    It holds for the thread that enters it and for functions traced there. A strategy with several
    replicas traces in threads of its own: set `BERT_TF_OPS` for those.

    Args:
        name: "native", "reference" or "auto".

    Raises:
        ValueError: another name.

    Example:
        >>> with bert_tf.ops.backend("reference"):
        ...     y = bert_tf.ops.fused_bias_gelu(tf.ones([2, 4]), tf.zeros([4]))
    """
    if name not in BACKENDS:
        raise ValueError(f"Expected a backend among {', '.join(BACKENDS)}. Received: name={name!r}")
    stack = _scopes.__dict__.setdefault("stack", [])
    stack.append(name)
    try:
        yield
    finally:
        stack.pop()


def _visible_gpus() -> list[tf.config.PhysicalDevice]:
    return tf.config.get_visible_devices("GPU")


def _unfit_gpu(gpus: list[tf.config.PhysicalDevice]) -> str:
    """Why the GPU kernels cannot run on these, or ""."""
    for gpu in gpus:
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        if capability is not None and capability < _LEAST_COMPUTE_CAPABILITY:
            received, needed = (
                "{}.{}".format(*each) for each in (capability, _LEAST_COMPUTE_CAPABILITY)
            )
            return (
                f"it has compute capability {received}, less than the {needed} of the GPU kernels"
            )
    return ""


def _requested_backend() -> str:
    """The innermost `backend()` of this thread, or else the environment's choice."""
    stack = _scopes.__dict__.get("stack")
    if stack:
        return stack[-1]
    name = os.environ.get(BACKEND_VARIABLE) or "auto"
    if name not in BACKENDS:
        raise ValueError(
            f"Expected {BACKEND_VARIABLE} to be one of {', '.join(BACKENDS)}. "
            f"Received: {BACKEND_VARIABLE}={name!r}"
        )
    return name


def _load() -> _Loaded:
    """Loads the shared object once a process and logs once what came of it."""
    global _loaded
    if _loaded is None:
        with _lock:
            if _loaded is None:
                result = _try_load()
                level = logging.INFO if result.suits_auto else logging.WARNING
                taken = "native" if result.suits_auto else "reference (plain TensorFlow)"
                _logger.log(level, "bert_tf ops: %s, because %s.", taken, result.reason)
                _loaded = result
    return _loaded


def _try_load() -> _Loaded:
    if not _LIBRARY_PATH.is_file():
        return _Loaded(
            None,
            f"the native ops are not built ({_LIBRARY_PATH} is missing); results are the same, "
            "speed and memory are not. `make ops` builds them, and so does `pip install .` where "
            "Bazel is on PATH",
            suits_auto=False,
        )
    info = build_info()
    built_for = info.get("tensorflow_version")
    if _minor_version(built_for) != _minor_version(tf.__version__):
        # TensorFlow's C++ ABI holds within one minor version: loading could crash the process.
        return _Loaded(
            None,
            f"the native ops in {_LIBRARY_PATH} were built for TensorFlow "
            f"{built_for or 'of an unknown version'} and this is TensorFlow {tf.__version__}; "
            "build them again with `make ops`, or reinstall with "
            "`pip install --no-build-isolation --force-reinstall --no-deps .`",
            suits_auto=False,
        )
    try:
        module = tf.load_op_library(str(_LIBRARY_PATH))
    except (tf.errors.OpError, OSError) as error:
        return _Loaded(
            None,
            f"{_LIBRARY_PATH} could not be loaded ({error}); build it again with `make ops`",
            suits_auto=False,
        )
    missing_xla = _load_addition(_XLA_LIBRARY_PATH, _XLA_BUILD_INFO_PATH)
    gpus = _visible_gpus()
    if gpus:
        # Not `auto`: no GPU has run these kernels yet.
        missing = _unfit_gpu(gpus) or _load_addition(_GPU_LIBRARY_PATH, _GPU_BUILD_INFO_PATH)
        # After it: the lowerings' handlers call its kernels.
        missing_xla = missing or _load_addition(_GPU_XLA_LIBRARY_PATH, _GPU_XLA_BUILD_INFO_PATH)
        return _Loaded(
            module,
            f"a GPU is visible, and {missing or 'the GPU kernels are not measured yet'} "
            f"({BACKEND_VARIABLE}=native takes the native ops all the same)",
            suits_auto=False,
            has_xla_lowerings=not missing_xla,
            has_gpu_kernels=not missing,
        )
    xla = f"XLA takes the reference ({missing_xla})" if missing_xla else "XLA can compile the ops"
    return _Loaded(
        module,
        f"{_LIBRARY_PATH.name} fits TensorFlow {tf.__version__}; {xla}",
        suits_auto=True,
        has_xla_lowerings=not missing_xla,
    )


def _load_addition(path: Path, build_info_path: Path) -> str:
    """Loads an object that adds to the ops; returns why it could not, or ""."""
    if not path.is_file():
        return f"{path.name} is not built"
    built_for = _read_build_info(build_info_path).get("tensorflow_version")
    if _minor_version(built_for) != _minor_version(tf.__version__):
        return f"{path.name} was built for {built_for}"
    try:
        tf.load_library(str(path))
    except (tf.errors.OpError, OSError) as error:
        return f"{path.name} could not be loaded: {error}"
    return ""


def _read_build_info(path: Path) -> dict:
    try:
        with open(path, encoding="utf-8") as file:
            info = json.load(file)
    except (OSError, ValueError):
        return {}
    return info if isinstance(info, dict) else {}


def _minor_version(version: object) -> str | None:
    """ "2.21" of "2.21.0"; None for what is no version."""
    return ".".join(version.split(".")[:2]) if isinstance(version, str) else None
