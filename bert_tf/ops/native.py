"""What every op does first: it checks its arguments and selects its implementation.

The environment variable `BERT_TF_OPS` selects the backend, and `backend()` overrides it for a block
of code:
  auto       The native op if it is available, else the reference implementation (the default).
  native     The native op, or an error if it is not available. The tests use this.
  reference  The reference implementation, in stock TensorFlow ops.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from types import ModuleType

import numpy as np
import tensorflow as tf

from bert_tf.base.keras_compat import is_traced_for_xla
from bert_tf.base.signatures import has_signature_of
from bert_tf.ops import loading

BACKEND_VARIABLE = "BERT_TF_OPS"
BACKENDS = ("auto", "native", "reference")
FLOAT_TYPES = (tf.float32, tf.bfloat16, tf.float16)

# The ops, and whether they have a GPU kernel.
_OPS = {
    "adam_weight_decay": True,
    "fused_bias_gelu": True,
    "fused_dense": False,
    "fused_gate": True,
    "fused_residual_layer_norm": True,
    "global_norm": True,
    "quantized_attention": False,
    "quantized_dense": False,
    "varlen_attention": True,
    "varlen_cross_attention": False,
}
# What `auto` uses on a GPU: the kernels that a measurement found to be faster than stock
# TensorFlow, by op and mode, "graph" or "XLA" (docs/performance/gpu.md, "A training step"). The
# kernels under XLA, and the others, have not been measured.
_H100_STEP = "with it a training step on an H100 took 66.5 ms instead of 201.1 ms"
_FASTER_ON_GPU = {
    ("fused_bias_gelu", "graph"): _H100_STEP,
    ("fused_residual_layer_norm", "graph"): _H100_STEP,
    ("varlen_attention", "graph"): _H100_STEP,
}

_TPU_STRATEGIES = (tf.distribute.TPUStrategy, tf.distribute.experimental.TPUStrategy)

_scope: contextvars.ContextVar[str | None] = contextvars.ContextVar("backend", default=None)
_static_shapes: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "static_shapes", default=False
)


def library() -> ModuleType | None:
    """Returns the module of the native ops (`bert_tf_fused_bias_gelu`, …), or None.

    The first call registers them, so that SavedModels that hold them can be loaded.

    Example:
        >>> native = bert_tf.ops.library()
    """
    return (loading.loaded or loading.load()).library


def used_library(runs_on_gpu: bool = True, op: str | None = None) -> ModuleType | None:
    """Returns the module of the native ops, or None for an op that now uses its reference.

    Inside `tf.function` this is evaluated once, when the function is traced. With
    `jit_compile=True`, an op uses its reference unless its lowerings for XLA are built.
    `runs_on_gpu` is False for an op without a GPU kernel. If a GPU is visible, such an op uses the
    reference implementation even if the native ops are requested, because its tensors and variables
    are on the GPU. `op` is the name of an op with a GPU kernel: "auto" uses the kernel if it was
    measured to be faster. Without a name, the result says whether all ops use the library.

    Raises:
        RuntimeError: If the native ops are requested and are not available, or not under XLA.
        ValueError: If `BERT_TF_OPS` is none of "auto", "native" and "reference".
    """
    requested = _scope.get() or _checked_backend(os.environ.get(BACKEND_VARIABLE) or "auto")
    if requested == "reference":
        return None
    loaded = loading.loaded or loading.load()
    is_for_xla = is_traced_for_xla(tf.compat.v1.get_default_graph())
    lacks_lowerings = not loaded.has_xla_lowerings and is_for_xla
    if requested == "native":
        if loaded.library is None or lacks_lowerings:
            part, command = "ops", "make ops"
            if lacks_lowerings:
                part, command = "ops and their XLA lowerings", "make ops ALL=1"
            raise RuntimeError(
                f"The native {part} must be available if {BACKEND_VARIABLE}=native or "
                f"`backend('native')` requests them. Received: {loaded.reason}. "
                f"Build them with `{command}`, or with `pip install .` if Bazel is on PATH, "
                f"or set {BACKEND_VARIABLE}=auto."
            )
        suits = runs_on_gpu or not tf.config.get_visible_devices("GPU")
    else:
        # On a GPU, what is traced with static shapes goes to XLA.
        under_xla = is_for_xla or (loaded.sees_gpu and needs_static_shapes())
        suits = not _why_not_native(loaded, op, runs_on_gpu, under_xla)
    return loaded.library if suits else None


@functools.cache
def _checked_backend(requested: str) -> str:
    """Returns the value of `BERT_TF_OPS`, which every op asks for, after one check of each."""
    if requested not in BACKENDS:
        raise ValueError(
            f"`{BACKEND_VARIABLE}` must be one of {', '.join(BACKENDS)}. "
            f"Received: {BACKEND_VARIABLE}={requested!r}"
        )
    return requested


def _why_not_native(
    loaded: loading.Loaded, op: str | None, runs_on_gpu: bool, under_xla: bool
) -> str:
    """Returns why "auto" uses the reference implementation of an op, or "" if it does not."""
    if loaded.library is None:
        return loaded.reason
    if is_on_tpu():
        return "XLA compiles everything for a TPU"
    if loaded.sees_gpu and not runs_on_gpu:
        return "it has no GPU kernel"
    if loaded.sees_gpu and not loaded.has_gpu_kernels:
        return loaded.reason
    if under_xla and not loaded.has_xla_lowerings:
        return "its lowering for XLA is not built (`make ops ALL=1`)"
    if loaded.sees_gpu and (op, "XLA" if under_xla else "graph") not in _FASTER_ON_GPU:
        return "its GPU kernel was not measured there"
    return ""


def _described(
    loaded: loading.Loaded, requested: str, op: str, has_gpu_kernel: bool, mode: str
) -> str:
    if requested == "auto":
        why_not = _why_not_native(loaded, op, has_gpu_kernel, mode == "XLA")
    else:
        why_not = "it has no GPU kernel" if loaded.sees_gpu and not has_gpu_kernel else ""
    if why_not:
        return f"reference ({'see above' if why_not == loaded.reason else why_not})"
    measured = _FASTER_ON_GPU.get((op, mode)) if loaded.sees_gpu else None
    return f"native ({measured})" if measured else "native"


def describe() -> str:
    """Describes which implementation each op uses now, without and with XLA, and why.

    Raises:
        ValueError: If `BERT_TF_OPS` is none of "auto", "native" and "reference".

    Example:
        >>> with bert_tf.ops.backend("reference"):
        ...     print(bert_tf.ops.describe())
        Every op uses its reference implementation, because "reference" is requested.
    """
    requested = _scope.get() or _checked_backend(os.environ.get(BACKEND_VARIABLE) or "auto")
    if requested == "reference":
        return 'Every op uses its reference implementation, because "reference" is requested.'
    loaded = loading.load()
    lines = [f"The native ops: {loaded.reason}. Requested: {requested}."]
    for op, has_gpu_kernel in _OPS.items():
        graph, xla = (
            _described(loaded, requested, op, has_gpu_kernel, mode) for mode in ("graph", "XLA")
        )
        lines.append(f"{op}: {graph}" if graph == xla else f"{op}: {graph}; with XLA: {xla}")
    return "\n".join(lines)


def use_native(runs_on_gpu: bool = True) -> bool:
    """Returns whether `used_library` returns one for all ops."""
    return used_library(runs_on_gpu) is not None


def is_on_tpu() -> bool:
    """Returns whether the code runs on a TPU: XLA compiles all of it, without custom kernels."""
    return isinstance(tf.distribute.get_strategy(), _TPU_STRATEGIES)


def compiles_under_xla() -> bool:
    """Returns whether XLA can compile the native ops: on a CPU or a GPU whose lowerings are built.

    If it cannot, functions for XLA must be traced under `backend("reference")`.
    """
    return loading.load().has_xla_lowerings and not is_on_tpu()


def has_gpu_kernels() -> bool:
    """Returns whether a GPU is visible and the GPU kernels are loaded for it."""
    return loading.load().has_gpu_kernels


def active_backend() -> str:
    """Returns the backend that all ops would use now: "native" or "reference".

    On a GPU, "auto" may use GPU kernels for some of them: `describe` says for which.

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


def reference_of(op: Callable, notes: str) -> Callable:
    """Returns the reference implementation of an op: the op under `backend("reference")`.

    Its docstring has the `notes` and the example of the op.
    """
    name = f"{op.__name__}_reference"

    @tf.autograph.experimental.do_not_convert  # AutoGraph cannot convert the context manager
    @has_signature_of(op)
    def reference(*args, **kwargs):
        with backend("reference"):
            return op(*args, **kwargs)

    _, title, example = (inspect.getdoc(op) or "").partition("Example:")  # none with -OO
    example = re.sub(rf"\b{op.__name__}\(", f"{name}(", example.partition("\n\n")[0])
    first = f"Computes `{op.__name__}` in stock TensorFlow ops: the reference implementation."
    reference.__name__ = reference.__qualname__ = name
    reference.__module__ = op.__module__
    reference.__doc__ = f"{first}\n\n{inspect.cleandoc(notes)}\n\n{title}{example}"
    return reference


@contextlib.contextmanager
def static_shapes() -> Iterator[None]:
    """Makes models in this context use layouts with static shapes, for functions that go to XLA."""
    token = _static_shapes.set(True)
    try:
        yield
    finally:
        _static_shapes.reset(token)


def needs_static_shapes() -> bool:
    """Returns whether XLA compiles the code that is traced: in `static_shapes()` or on a TPU."""
    return _static_shapes.get() or isinstance(tf.distribute.get_strategy(), _TPU_STRATEGIES)


def float_tensors(**arguments) -> list[tf.Tensor | None]:
    """Converts the arguments to tensors of the dtype of the first one; None stays None.

    Raises `TypeError` if the first is not float32, bfloat16 or float16, or if the dtypes differ.
    """
    tensors: list[tf.Tensor | None] = []
    first_name, dtype = None, None
    for name, value in arguments.items():
        if value is None:
            tensors.append(None)
            continue
        # Python numbers and lists get the first tensor's dtype; tensors and arrays keep theirs.
        convertible = dtype if isinstance(value, (int, float, list, tuple)) else None
        tensor = tf.convert_to_tensor(value, dtype=convertible)
        if dtype is None:
            first_name, dtype = name, tensor.dtype
            if dtype not in FLOAT_TYPES:
                raise TypeError(
                    f"`{name}` must have dtype float32, bfloat16 or float16. "
                    f"Received: {name}.dtype={dtype.name}"
                )
        elif tensor.dtype != dtype:
            raise TypeError(
                f"`{name}` must have the dtype of `{first_name}`, {dtype.name}. "
                f"Received: {name}.dtype={tensor.dtype.name}. Cast one of them."
            )
        tensors.append(tensor)
    return tensors


def check_shape(name: str, tensor: tf.Tensor | None, shape: list, given: str) -> None:
    """Raises `ValueError` if a tensor, unless it is None, cannot have the shape that follows."""
    if tensor is not None and not tensor.shape.is_compatible_with(shape):
        received = f"{name}.shape={tensor.shape}"
        raise ValueError(f"`{name}` must have shape {shape} if {given}. Received: {received}")


def check_shapes(x: tf.Tensor, residual: tf.Tensor | None = None, **vectors) -> None:
    """Raises `ValueError` if x is a scalar, or others do not fit it as far as shapes are known.

    The residual has the shape of x, and the vectors its last dimension; each may be None.
    """
    if x.shape.rank == 0:
        raise ValueError(f"`x` must have shape [..., features]. Received: x.shape={x.shape}")
    for name, tensor in {"residual": residual, **vectors}.items():
        shape = x.shape if name == "residual" else [x.shape[-1]]
        if tensor is not None and not tensor.shape.is_compatible_with(shape):
            check_shape(name, tensor, shape, f"x.shape={x.shape}")


def dropout_arguments(rate: float, seed) -> tuple[float, tf.Tensor]:
    """Returns the rate as a float and the seed as a scalar int64, 0 without a seed.

    Raises `ValueError` if the rate is not in [0, 1), is above 0 and there is no seed, or the seed
    is not an integer.
    """
    rate = float(rate)
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"`dropout_rate` must be in [0, 1). Received: dropout_rate={rate}")
    if rate > 0.0 and seed is None:
        raise ValueError(
            "`seed` must be an int or a scalar int64 tensor if `dropout_rate` is above 0. "
            f"Received: dropout_rate={rate}, seed=None. Pass a new seed at every step."
        )
    return rate, tf.constant(0, tf.int64) if seed is None else seed_tensor(seed)


def seed_tensor(seed: int | tf.Tensor | None) -> tf.Tensor:
    """Converts a seed to the scalar int64 that the ops take.

    None, for calls without dropout, becomes 0. Python integers of up to 64 bits keep their bits.
    Raises `ValueError` if the seed is not an int or a scalar integer tensor.
    """
    if seed is None:
        return tf.constant(0, tf.int64)
    if isinstance(seed, (int, np.integer)):
        bits = int(seed) & (2**64 - 1)
        return tf.constant(bits - 2**64 if bits >= 2**63 else bits, tf.int64)
    seed = tf.convert_to_tensor(seed)
    if not seed.dtype.is_integer or not seed.shape.is_compatible_with([]):
        raise ValueError(
            "`seed` must be an int or a scalar integer tensor. "
            f"Received: seed.dtype={seed.dtype.name}, seed.shape={seed.shape}"
        )
    return tf.cast(seed, tf.int64)


def self_attention_tensors(qkv, row_splits, rule) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
    """Returns the first two arguments of `varlen_attention` as tensors, and the distance bias.

    The bias is in float32 and in a list, which is empty without one. Raises `TypeError` if the
    dtype of `qkv`, `row_splits` or the distance bias is not supported, and `ValueError` if shapes
    do not match.
    """
    qkv, bias = float_tensors(qkv=qkv, distance_bias=rule.distance_bias)
    if not qkv.shape.is_compatible_with([None, 3, None, None]):
        raise ValueError(
            f"`qkv` must have shape [tokens, 3, heads, head size]. Received: qkv.shape={qkv.shape}"
        )
    row_splits = row_splits_tensor("row_splits", row_splits)
    if rule.rotation is not None:
        _check_rotation(tf.convert_to_tensor(rule.rotation), qkv)
    if bias is None:
        return qkv, row_splits, []
    heads, distances = qkv.shape.with_rank(4)[2], bias.shape[-1] if bias.shape.rank else None
    is_odd = distances is None or distances % 2 == 1
    if not (bias.shape.is_compatible_with([heads, None]) and is_odd):
        raise ValueError(
            f"`distance_bias` must have shape [{heads or 'heads'}, an odd number of distances]. "
            f"Received: distance_bias.shape={bias.shape}, qkv.shape={qkv.shape}"
        )
    return qkv, row_splits, [tf.cast(bias, tf.float32)]


def distance_vector_tensors(qkv, rule) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Returns `rule.distance_vectors`, in float32, and `distance_rows`, each in a list.

    Raises `TypeError` if the vectors do not have the dtype of `qkv`, and `ValueError` if their
    shape does not match.
    """
    _, vectors = float_tensors(qkv=qkv, distance_vectors=rule.distance_vectors)
    shape = [None, 2, *qkv.shape.with_rank(4)[2:]]
    check_shape("distance_vectors", vectors, shape, f"qkv.shape={qkv.shape}")
    return [tf.cast(vectors, tf.float32)], [tf.convert_to_tensor(rule.distance_rows, tf.int32)]


def _check_rotation(rotation: tf.Tensor, qkv: tf.Tensor) -> None:
    columns = rotation.shape[-1] if rotation.shape.rank == 2 else None
    most = qkv.shape[-1] or columns
    if rotation.dtype != tf.float32 or columns is None or columns % 2 or columns > (most or 0):
        raise ValueError(
            "`rotation` must be float32 [places, an even number of columns, at most the head size "
            f"{most}]. Received: rotation={rotation.dtype.name} {rotation.shape}"
        )


def row_splits_tensor(name: str, row_splits) -> tf.Tensor:
    """Returns row splits as a tensor.

    Raises `TypeError` if the dtype is neither int32 nor int64, and `ValueError` if they are not a
    vector with one element or more.
    """
    row_splits = tf.convert_to_tensor(row_splits)
    if row_splits.dtype not in (tf.int32, tf.int64):
        raise TypeError(
            f"`{name}` must have dtype int32 or int64. "
            f"Received: {name}.dtype={row_splits.dtype.name}"
        )
    if not row_splits.shape.is_compatible_with([None]) or row_splits.shape == [0]:
        raise ValueError(
            f"`{name}` must have shape [sequences + 1]. Received: {name}.shape={row_splits.shape}"
        )
    return row_splits


def multiplies_bfloat16(tokens: tf.Tensor, compute_dtype: str | None) -> bool:
    """Returns whether matrix products of the tokens are computed in bfloat16.

    Raises `ValueError` if `compute_dtype` is neither None nor "bfloat16".
    """
    if compute_dtype not in (None, "bfloat16"):
        raise ValueError(
            '`compute_dtype` must be "bfloat16", or None for the dtype of the tokens. '
            f"Received: compute_dtype={compute_dtype!r}"
        )
    return "bfloat16" in (compute_dtype, tokens.dtype.name)


# A gradient of a gradient needs the gradient of a gradient op, which the native ops do not have. So
# does forward-mode differentiation (`tf.autodiff.ForwardAccumulator`), which TensorFlow computes
# with two backward passes. The stock ops of the reference implementations have all gradients.
_WAY_OUT = (
    "Call the model (or the op) inside `with bert_tf.ops.backend('reference'):`, or set "
    "BERT_TF_OPS=reference."
)


INTEGERS_HAVE_NO_GRADIENT = (
    "Integers have no gradient. Train in floating point and quantize the model afterwards."
)


def refuse_second_order(op_type: str, function: str) -> None:
    """Registers a gradient of the gradient op of a public function that raises an error."""
    rule = (
        "differentiated only once and in reverse mode: the native ops have no second derivatives "
        "and no forward-mode differentiation"
    )
    refuse_gradient(op_type, function, _WAY_OUT, rule)


def refuse_gradient(
    op_type: str, function: str, way_out: str, rule: str = "used for inference only"
) -> None:
    """Registers a gradient of an op that raises an error, for ops for inference by default."""

    @tf.RegisterGradient(op_type)
    def _refuse(op: tf.Operation, *gradients: tf.Tensor) -> None:
        received = f"the gradient of {op_type}. {way_out}"
        raise LookupError(f"`{function}` must be {rule}. Received: {received}")


_CPU_INFO = pathlib.Path("/proc/cpuinfo")


@functools.cache
def has_bfloat16_products() -> bool:
    """Returns whether the processor has AVX512-BF16, which `fused_dense` uses.

    The result is False if the features of the processor are unknown.
    """
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return False
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    return "avx512_bf16" in flags
