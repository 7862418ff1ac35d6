"""The attention ops in the table of ops.py.

Glossary: `N` heads, `D` head size, `M` the largest distance of query and key with a bias of its
own.
"""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tests.conformance.op import BY_ROW, INTEGERS, ROUNDING, SEED, Bounds, Op, dy_in_numpy
from tests.conformance.task import Lack
from tests.ops import attention_rules, numpy_quantized_attention, numpy_varlen_attention


def _attention_arguments(normal, shape, has_seed, reach=None, kinds=0):
    """`shape` is the lengths of the sequences, N and D; `reach` is M, or None for no bias.

    `kinds` is the number of vectors of distances.
    """
    lengths, heads, head_size = shape
    made = {"qkv": normal(sum(lengths), 3, heads, head_size)}
    splits_dtype = tf.int64 if has_seed else tf.int32
    made["row_splits"] = tf.constant(np.cumsum([0, *lengths]), splits_dtype)
    if has_seed:
        made["seed"] = tf.constant(SEED + sum(lengths), tf.int64)
    if reach is not None:
        made["distance_bias"] = normal(heads, 2 * reach + 1)
    if kinds:
        made["distance_vectors"] = normal(kinds, 2, heads, head_size)
    return made


def _attention_formula(qkv, row_splits, seed=0, compute_dtype=None, rotation=None, **options):
    if rotation is not None:
        qkv = numpy_varlen_attention.turned(qkv, row_splits, rotation)
    if compute_dtype is not None:
        qkv = tf.cast(tf.cast(qkv, compute_dtype), tf.float64).numpy()
    dy = dy_in_numpy(len(qkv), *qkv.shape[2:])
    biases = [name for name in ("distance_bias", "distance_vectors") if name in options]
    y, d_qkv, *d_biases = numpy_varlen_attention.varlen_attention(
        qkv, row_splits, seed=int(seed), d_output=dy, **options
    )
    if rotation is not None:
        d_qkv = numpy_varlen_attention.turned(d_qkv, row_splits, rotation, back=True)
    return y, dict(zip(("qkv", *biases), (d_qkv, *d_biases)))


def _cross_attention_arguments(normal, shape, has_seed):
    """`shape` is the numbers of queries and of keys of the sequences, N and D."""
    lengths, key_lengths, heads, head_size = shape
    made = {
        "query": normal(sum(lengths), heads, head_size),
        "key_value": normal(sum(key_lengths), 2, heads, head_size),
        "query_row_splits": tf.constant(np.cumsum([0, *lengths]), tf.int32),
        "key_row_splits": tf.constant(np.cumsum([0, *key_lengths]), tf.int64),
    }
    if has_seed:
        made["seed"] = tf.constant(SEED + sum(lengths), tf.int64)
    return made


def _cross_attention_formula(query, key_value, seed=0, compute_dtype=None, **options):
    if compute_dtype is not None:
        query, key_value = (
            tf.cast(tf.cast(x, compute_dtype), tf.float64).numpy() for x in (query, key_value)
        )
    y, d_query, d_key_value = numpy_varlen_attention.varlen_cross_attention(
        query, key_value, seed=int(seed), d_output=dy_in_numpy(*query.shape), **options
    )
    return y, {"query": d_query, "key_value": d_key_value}


def _rotation(columns):
    """`[places, columns]`, with a place for each token of the longest sequence here."""
    angles = np.arange(130)[:, np.newaxis] * 100.0 ** -np.linspace(0, 1, columns // 2)
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def attention(*parts, reach=None, turned=0, kinds=0, **mask):
    """Returns an op with `turned` rotated columns and `kinds` vectors of distances."""
    has_dropout = "dropout" in parts
    head_sizes = (1, 5, 32, 40, 64, 128) if has_dropout and not mask else ()
    options = {**mask, "dropout_rate": 0.3} if has_dropout else {**mask}
    if turned:
        options = {**options, "rotation": _rotation(turned)}
        head_sizes = (5, 64)
    if kinds:  # each for more distances than the last, to both sides
        logarithms = np.round(np.log2(1 + np.abs(np.arange(-60, 61)))) * np.sign(np.arange(-60, 61))
        options["distance_rows"] = np.clip(kinds // 2 - logarithms, 0, kinds - 1).astype(np.int32)
        head_sizes = (5, 64)
    bounds = Bounds(of_largest=9e-6, roundings=3)
    if "compute_bfloat16" in parts:
        # The probabilities and the gradients of the scores are rounded to bfloat16, too.
        options = {**options, "compute_dtype": "bfloat16"}
        bounds = Bounds(of_largest=2 * ROUNDING[tf.bfloat16], roundings=3)
    return Op(
        attention_rules.varlen_attention,
        functools.partial(_attention_arguments, has_seed=has_dropout, reach=reach, kinds=kinds),
        _attention_formula,
        shapes=tuple(((2, 37, 66), 2, size) for size in head_sizes),
        more_shapes=tuple(
            (lengths, 3, 8) for lengths in ((3, 0, 1, 17, 70), (1,), (64, 128), (0, 0), ())
        ),
        empty=(((0, 0, 0), 1, 5),),
        small=((3, 0, 4), 3, 8),
        fewer=((2, 1, 1), 3, 8),
        large=((30, 70, 100), 2, 8),
        options=options,
        rows=("qkv",),
        row_splits={"qkv": "row_splits"},
        bounds=bounds,
        gradient_bounds=bounds,
        # The sums of the distance bias cancel each other: those of a query are 0.
        sum_bounds=bounds._replace(roundings=30),
        spreads_nan=False,
        spreads_infinity=False,
        says={"distance_bias": "an odd number"},
        lacks={
            **(BY_ROW if has_dropout else {}),
            "reference under XLA": Lack("XLA must know how long the longest sequence is"),
        },
    )


def cross_attention(*parts, **mask):
    self_attention = attention(*parts, **mask)
    head_sizes = (1, 5, 64, 128) if mask else (40,)
    return dataclasses.replace(
        self_attention,
        function=attention_rules.varlen_cross_attention,
        arguments=functools.partial(_cross_attention_arguments, has_seed="dropout" in parts),
        formula=_cross_attention_formula,
        shapes=tuple(((2, 37, 66), (66, 20, 130), 2, size) for size in head_sizes),
        more_shapes=tuple(
            (lengths, key_lengths, 3, 8)
            for lengths, key_lengths in (
                ((3, 0, 1, 17, 70), (1, 5, 0, 80, 20)),
                ((1, 1, 1), (64, 129, 300)),
                ((128,), (1,)),
                ((0, 0), (3, 0)),
                ((3, 0), (0, 0)),
                ((), ()),
            )
        ),
        empty=(((0, 0, 0), (0, 0, 0), 1, 5),),
        small=((3, 0, 4), (5, 2, 3), 3, 8),
        fewer=((2, 1, 1), (1, 3, 0), 3, 8),
        large=((30, 70, 100), (100, 90, 40), 2, 8),
        rows=("query",),
        row_splits={"query": "query_row_splits", "key_value": "key_row_splits"},
        # The largest gradients of qkv are those of the values; here, the bound is of one tensor.
        gradient_bounds=self_attention.bounds._replace(roundings=4),
    )


def quantized_attention(**mask):
    def formula(**arguments):
        return numpy_quantized_attention.quantized_attention(**arguments), {}

    return dataclasses.replace(
        attention(**mask),
        function=attention_rules.quantized_attention,
        formula=formula,
        shapes=tuple(((2, 37, 66), 2, size) for size in (1, 5, 32, 40, 64, 128)),
        # Where the exponential has another last bit, a weight may differ by 1 of 255.
        bounds=Bounds(of_largest=0.01, roundings=3),
        gradient_bounds=None,
        lacks={**attention().lacks, **INTEGERS},
    )
