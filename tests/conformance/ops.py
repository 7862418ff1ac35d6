"""The table of the ops: what test_ops.py needs to know of each.

A new op, and each variant of it, is one entry of `OPS`. The expected values come from the float64
formulas of tests/ops, which share no code with the ops. `adam_weight_decay`, which updates
variables, is not in the table: it has tests/ops/test_adam_weight_decay.py.

Glossary: `N` heads, `D` head size, `M` rows, `K` input features.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from bert_tf import ops
from tests.conformance.attention_ops import attention, cross_attention, quantized_attention
from tests.conformance.op import BY_ROW, INTEGERS, SEED, Bounds, Op, dy_in_numpy
from tests.conformance.task import Lack
from tests.ops.dense_float64 import (
    PAIR,
    QUAD,
    epilogue,
    packed_places,
    packed_size,
    quantized_product,
    rounded_to_bfloat16,
    word_packed_places,
)
from tests.ops.gelu_float64 import gelu, gelu_slope, silu, silu_slope
from tests.ops.layer_norm_float64 import residual_layer_norm, residual_layer_norm_gradients
from tests.ops.numpy_varlen_attention import MASKS
from tests.ops.philox_numpy import keep_mask


def _sum_rows(values):
    return values.sum(tuple(range(values.ndim - 1)))


def _gelu_arguments(normal, shape):
    return {"x": normal(*shape, scale=2.0), "bias": normal(shape[-1])}


def _gelu_formula(x, bias, approximate=False):
    s = (x.astype(np.float32) + bias.astype(np.float32)).astype(np.float64)  # the op's sum
    dx = dy_in_numpy(*x.shape) * gelu_slope(s, approximate)
    return gelu(s, approximate), {"x": dx, "bias": _sum_rows(dx)}


def _gate_formula(x, activation):
    s, factor = np.split(x, 2, axis=-1)
    is_silu, is_tanh = activation == "silu", activation == "gelu_new"
    activated = silu(s) if is_silu else gelu(s, is_tanh)
    slope = silu_slope(s) if is_silu else gelu_slope(s, is_tanh)
    dy = dy_in_numpy(*s.shape)
    return activated * factor, {"x": np.concatenate([dy * factor * slope, dy * activated], -1)}


def _layer_norm_arguments(normal, shape, parts):
    made = {"x": normal(*shape, mean=0.5, scale=1.5)}
    made["gamma"] = normal(shape[-1], mean=1.0, scale=0.3)
    made["beta"] = normal(shape[-1], scale=0.3)
    if "residual" in parts:
        made["residual"] = normal(*shape)
    if "bias" in parts:
        made["bias"] = normal(shape[-1])
    if "dropout" in parts:
        made["seed"] = tf.constant(SEED + shape[0], tf.int64)
    return made


def _layer_norm_formula(
    x, gamma, beta, residual=None, bias=None, seed=0, dropout_rate=0.0, epsilon=1e-12, is_rms=False
):
    keep = keep_mask(int(seed), x.shape, dropout_rate)
    y, saved = residual_layer_norm(x, residual, bias, gamma, beta, epsilon, keep, is_rms)
    gradients = residual_layer_norm_gradients(dy_in_numpy(*x.shape), gamma, saved, keep, is_rms)
    return y, dict(zip(("x", "residual", "bias", "gamma", "beta"), gradients))


_STATIC_SCALE = (0.0123, 93.0)  # clamps a few numbers of x


def _dense_arguments(normal, shape, is_quantized, parts):
    """`shape` is M, K and the units."""
    rows, depth, units = shape
    made = {"units": units, "x": normal(rows, depth, mean=0.4)}
    kernel = normal(depth, units, scale=max(depth, 1) ** -0.5)
    if is_quantized:
        static_scale = _STATIC_SCALE if "static" in parts else None
        integers = ops.quantize_kernel(kernel)
        made["kernel"] = ops.pack_quantized_dense(*integers, static_scale=static_scale)
    else:
        kernel = tf.cast(kernel, tf.bfloat16) if "bfloat16" in parts else kernel
        made["packed"] = ops.pack_dense(kernel)
    if "bias" in parts:
        made["bias"] = normal(units)
    if "residual" in parts:
        made["residual"] = normal(rows, units)
    if "layer_norm" in parts:
        made["gamma"] = normal(units, mean=1.0, scale=0.3)
        made["beta"] = normal(units, scale=0.3)
    return made


def _fused_dense_formula(x, packed, units, dtypes, **parts):
    return epilogue(_float_product(x, packed, units, dtypes["packed"]), **parts), {}


def _float_product(x, packed, units, dtype):
    if dtype != tf.bfloat16:
        return x @ packed[packed_places(x.shape[1], units)]
    return rounded_to_bfloat16(x) @ packed[word_packed_places(x.shape[1], units, PAIR)]


def _quantized_dense_formula(x, kernel, units, **parts):
    values = kernel.packed[word_packed_places(x.shape[1], units, QUAD)]  # [K, units]
    z = quantized_product(x, values, kernel.scale, kernel.smoothing, kernel.static_scale)
    return epilogue(z.astype(np.float64), **parts), {}


_INNER_UNITS = 40


def _feed_forward_arguments(normal, shape, pack):
    """`shape` is M and K."""
    rows, depth = shape

    def kernel(depth, units):
        return pack(normal(depth, units, scale=0.2))

    return {
        "x": normal(rows, depth, mean=0.4),
        "first": kernel(depth, _INNER_UNITS),
        "first_bias": normal(_INNER_UNITS),
        "second": kernel(_INNER_UNITS, depth),
        "second_bias": normal(depth),
        "gamma": normal(depth, mean=1.0, scale=0.3),
        "beta": normal(depth, scale=0.3),
    }


def _quantized_feed_forward_formula(
    x, first, first_bias, second, second_bias, gamma, beta, inner_units, activation
):
    wide, _ = _quantized_dense_formula(
        x, first, inner_units, bias=first_bias, activation=activation
    )
    norm = {"residual": x, "gamma": gamma, "beta": beta}
    return _quantized_dense_formula(wide, second, x.shape[1], bias=second_bias, **norm)


def _fused_feed_forward_formula(
    x, first, first_bias, second, second_bias, gamma, beta, inner_units, activation, dtypes
):
    wide = epilogue(
        _float_product(x, first, inner_units, dtypes["first"]), first_bias, activation=activation
    )
    wide = tf.cast(tf.cast(wide, dtypes["x"]), tf.float64).numpy()  # as `fused_dense` returns it
    z = _float_product(wide, second, x.shape[1], dtypes["second"])
    return epilogue(z, second_bias, residual=x, gamma=gamma, beta=beta), {}


def _pack_formula(kernel, dtypes, transposed=False):
    kernel = kernel.T if transposed else kernel
    depth, units = kernel.shape
    is_bfloat16 = dtypes["kernel"] == tf.bfloat16
    packed = np.zeros(packed_size(depth + depth % PAIR if is_bfloat16 else depth, units))
    places = word_packed_places(depth, units, PAIR) if is_bfloat16 else packed_places(depth, units)
    packed[places] = kernel
    return packed, {}


_INFERENCE = {"gradient": Lack("it is for inference", r"backend\('reference'\)")}


def _gelu(approximate):
    return Op(
        ops.fused_bias_gelu,
        _gelu_arguments,
        _gelu_formula,
        shapes=((1, 1), (3,), (2, 17), (5, 63), (4, 2, 65), (33, 768), (7, 1000), (2, 9000)),
        empty=((0, 5), (5, 0), (0, 0), (2, 0, 3), (0,)),
        small=(6, 20),
        fewer=(2, 20),
        large=(515, 96),
        options={"approximate": approximate},
        bounds=Bounds(1e-5, 6e-11),
        gradient_bounds=Bounds(2e-6, 2e-6),
        sum_bounds=Bounds(1e-5, 1e-5),
        spreads_nan=False,
        spreads_infinity=False,
    )


def _gate(activation):
    return Op(
        ops.fused_gate,
        lambda normal, shape: {"x": normal(*shape, scale=2.0)},
        _gate_formula,
        shapes=((1, 2), (6,), (2, 34), (5, 126), (4, 2, 130), (33, 1536), (2, 18000)),
        empty=((0, 6), (5, 0), (0, 0), (2, 0, 4), (0,)),
        small=(6, 20),
        fewer=(2, 20),
        large=(515, 96),
        options={"activation": activation},
        bounds=Bounds(1e-5, 1e-9),
        gradient_bounds=Bounds(2e-6, 1e-5),
        spreads_nan=False,
        spreads_infinity=False,
    )


def _layer_norm(*parts):
    options = {name: None for name in ("residual", "bias") if name not in parts}
    options |= {"is_rms": True} if "rms_norm" in parts else {}
    return Op(
        ops.fused_residual_layer_norm,
        functools.partial(_layer_norm_arguments, parts=parts),
        _layer_norm_formula,
        shapes=((1, 3), (17,), (5, 63), (4, 2, 65), (33, 768), (7, 1000), (2, 9000)),
        empty=((0, 5), (5, 0), (2, 0, 3)),
        small=(6, 20),
        fewer=(2, 20),
        large=(515, 96),
        options={**options, "dropout_rate": 0.1} if "dropout" in parts else options,
        rows=("x", "residual") if "residual" in parts else ("x",),
        bounds=Bounds(0.0, 1e-5),
        gradient_bounds=Bounds(0.0, 1e-5),
        sum_bounds=Bounds(1e-5, 5e-5),
        lacks=BY_ROW if "dropout" in parts else {},
        spreads_infinity="rms_norm" not in parts,  # finite numbers become zeros
    )


def _dense(kind, activation, *parts):
    is_quantized = kind == "quantized_dense"
    is_gated = "gated" in parts

    def shape(*sizes):
        return (*sizes[:2], -(-sizes[2] // 64) * 64) if is_gated else sizes

    return Op(
        getattr(ops, kind),
        functools.partial(_dense_arguments, is_quantized=is_quantized, parts=parts),
        _quantized_dense_formula if is_quantized else _fused_dense_formula,
        shapes=tuple(
            shape(*sizes)
            for sizes in ((1, 3, 5), (7, 64, 96), (40, 515, 33), (3, 768, 130), (300, 41, 64))
        ),
        empty=(shape(0, 5, 7), shape(4, 0, 7), (4, 5, 0)),
        small=shape(6, 70, 40),
        fewer=shape(2, 70, 40),
        large=shape(130, 300, 70),
        options={"activation": activation} | ({"is_gated": True} if is_gated else {}),
        rows=("x", "residual") if "residual" in parts else ("x",),
        bounds=Bounds(1e-6, 1e-5),
        formula_takes_dtypes=not is_quantized,
        lacks={
            **(INTEGERS if is_quantized else _INFERENCE),
            "unknown columns": Lack("the reference unpacks the kernel", "known last dimension"),
        },
        # An infinity times a float kernel is infinite; only LayerNorm makes NaN of that.
        spreads_infinity=is_quantized or "layer_norm" in parts,
    )


def _quantized_feed_forward():
    return Op(
        ops.quantized_feed_forward,
        functools.partial(
            _feed_forward_arguments,
            pack=lambda kernel: ops.pack_quantized_dense(*ops.quantize_kernel(kernel)),
        ),
        _quantized_feed_forward_formula,
        shapes=((1, 3), (7, 64), (3, 130), (150, 41)),
        empty=((0, 5),),
        small=(6, 70),
        fewer=(2, 70),
        large=(300, 70),
        options={"activation": "gelu", "inner_units": _INNER_UNITS},
        # A number between the layers that is rounded to another integer moves the result.
        bounds=Bounds(of_largest=0.02, roundings=8),
        lacks={
            **INTEGERS,
            "unknown columns": Lack("the reference unpacks the kernel", "known last dimension"),
        },
    )


def _fused_feed_forward():
    return dataclasses.replace(
        _quantized_feed_forward(),
        function=ops.fused_feed_forward,
        arguments=functools.partial(
            _feed_forward_arguments,
            pack=lambda kernel: ops.pack_dense(tf.cast(kernel, tf.bfloat16)),
        ),
        formula=_fused_feed_forward_formula,
        formula_takes_dtypes=True,
        # A number between the layers may be rounded to a neighbor.
        bounds=Bounds(of_largest=2e-3, roundings=1),
        lacks={**_quantized_feed_forward().lacks, **_INFERENCE},
    )


def _pack(transposed):
    return Op(
        ops.pack_dense,
        lambda normal, shape: {"kernel": normal(*(shape[::-1] if transposed else shape))},
        _pack_formula,
        shapes=((1, 1), (3, 32), (256, 5), (257, 33), (1000, 70)),
        empty=((0, 3), (3, 0)),
        small=(70, 40),
        fewer=(70, 40),
        large=(600, 100),
        options={"transposed": transposed},
        rows=(),
        formula_takes_dtypes=True,
        lacks={
            **_INFERENCE,
            "rows": Lack("its result is a vector"),
            "unknown columns": Lack("the reference cuts the kernel into blocks", "known shape"),
        },
    )


_SUBSETS = itertools.product(*([(), (part,)] for part in ("residual", "bias", "dropout")))
_EPILOGUES = (
    (None,),
    ("gelu",),
    ("gelu_new",),
    ("silu",),
    ("gelu", "gated"),
    (None, "gated"),
    (None, "residual"),
    (None, "layer_norm"),
    (None, "residual", "layer_norm"),
)


def _name(*parts):
    return " ".join(filter(None, parts))


# Every combination of options. Most share their code with an entry of `OPS` that has every test, so
# only their values are tested.
_COMBINATIONS = {
    **{
        _name("fused_residual_layer_norm", *parts): _layer_norm(*parts)
        for parts in (sum(subset, ()) for subset in _SUBSETS)
    },
    **{
        _name("varlen_attention", name, *parts): attention(*parts, **mask)
        for name, mask in MASKS.items()
        for parts in ((), ("dropout",), ("compute_bfloat16",), ("compute_bfloat16", "dropout"))
    },
    **{
        _name("varlen_attention", name, f"reach {reach}", *parts): attention(
            *parts, reach=reach, **MASKS[name]
        )
        for name, reach, *parts in (
            ("", 0),
            ("", 40, "dropout"),
            ("", 200, "compute_bfloat16"),
            ("causal globals", 2, "compute_bfloat16", "dropout"),
        )
    },
    **{
        _name("varlen_attention", name, f"turned {turned}", *parts): attention(
            *parts, turned=turned, reach=reach, **MASKS[name]
        )
        for name, turned, reach, *parts in (
            ("", 4, None, "dropout"),
            ("causal globals", 2, 3, "compute_bfloat16"),
        )
    },
    **{
        _name("varlen_attention", name, f"kinds {kinds}", *parts): attention(
            *parts, kinds=kinds, reach=reach, **MASKS[name]
        )
        for name, kinds, reach, *parts in (
            ("", 9, None),
            ("causal globals", 5, 3, "compute_bfloat16", "dropout"),
        )
    },
    **{
        _name("varlen_cross_attention", name, *parts): cross_attention(*parts, **MASKS[name])
        for name in ("", "causal")
        for parts in ((), ("dropout",), ("compute_bfloat16", "dropout"))
    },
    **{
        _name("quantized_attention", name): quantized_attention(**mask)
        for name, mask in MASKS.items()
    },
    **{
        _name("quantized_attention", name, f"reach {reach}"): quantized_attention(
            reach=reach, **MASKS[name]
        )
        for name, reach in (("", 0), ("", 200), ("globals", 5))
    },
    **{
        _name(kind, *bias, activation, *parts): _dense(kind, activation, *bias, *parts)
        for kind, *bias in (("fused_dense",), ("fused_dense", "bias"), ("quantized_dense", "bias"))
        for activation, *parts in _EPILOGUES
    },
}

OPS = {
    **{name: dataclasses.replace(op, only_values=True) for name, op in _COMBINATIONS.items()},
    # The following entries have every test.
    **{
        name: _COMBINATIONS[name]
        for name in (
            "fused_residual_layer_norm dropout",
            "fused_residual_layer_norm residual bias",
            "fused_residual_layer_norm residual bias dropout",
            "varlen_attention dropout",
            "varlen_attention kinds 9",
            "varlen_attention causal globals",
            "varlen_attention compute_bfloat16 dropout",
            "varlen_attention causal globals compute_bfloat16",
            "varlen_attention reach 40 dropout",
            "varlen_attention turned 4 dropout",
            "varlen_cross_attention causal dropout",
            "quantized_attention globals reach 5",
            "quantized_attention causal globals",
            "fused_dense bias gelu",
            "fused_dense bias residual",
            "fused_dense bias residual layer_norm",
            "quantized_dense bias gelu",
            "quantized_dense bias residual",
            "quantized_dense bias residual layer_norm",
        )
    },
    "fused_residual_layer_norm rms_norm residual bias dropout": _layer_norm(
        "rms_norm", "residual", "bias", "dropout"
    ),
    "fused_bias_gelu": _gelu(False),
    "fused_bias_gelu tanh": _gelu(True),
    "fused_gate gelu": _gate("gelu"),
    "fused_gate gelu_new": _gate("gelu_new"),
    "fused_gate silu": _gate("silu"),
    "quantized_dense static bias residual layer_norm": _dense(
        "quantized_dense", None, "static", "bias", "residual", "layer_norm"
    ),
    "fused_dense bfloat16 bias residual layer_norm": _dense(
        "fused_dense", None, "bfloat16", "bias", "residual", "layer_norm"
    ),
    "fused_dense bfloat16 bias gelu": _dense("fused_dense", "gelu", "bfloat16", "bias"),
    "fused_dense bias silu gated": _dense("fused_dense", "silu", "bias", "gated"),
    "quantized_dense bias silu gated": _dense("quantized_dense", "silu", "bias", "gated"),
    "fused_dense bfloat16 bias silu gated": _dense(
        "fused_dense", "silu", "bfloat16", "bias", "gated"
    ),
    "fused_feed_forward": _fused_feed_forward(),
    "quantized_feed_forward": _quantized_feed_forward(),
    "pack_dense": _pack(False),
    "pack_dense transposed": _pack(True),
}


def every_op(*needed: str, where: Callable[[Op], bool] = lambda op: True):
    """Parametrizes a test with the names of all ops that are tested for more than their values.

    Args:
        needed: Keys of `Op.lacks`; an op that lacks one of them is left out.
        where: An op for which it returns False is left out, too.
    """
    ops_to_test = {name: op for name, op in OPS.items() if not op.only_values and where(op)}
    names = [name for name, op in ops_to_test.items() if not set(needed) & set(op.lacks)]
    return pytest.mark.parametrize("name", names)
