"""Finds on real text how the inputs of quantized layers are scaled best, and what that costs."""

import contextlib
import dataclasses
import functools
import threading
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.batches import sorted_batches
from bert_tf.inputs.columns import as_columns, holds_text, is_text
from bert_tf.inputs.streams import materialize, yields_text
from bert_tf.inputs.token_rows import TokenizedTexts
from bert_tf.layers.dense import Dense
from bert_tf.layers.quantization import DYNAMIC, STATIC

# SmoothQuant's alpha: how much of the columns' differences is moved into the kernel.
_ALPHAS = {DYNAMIC: (0.25, 0.5, 0.75), STATIC: (0.15, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9)}
# Shares of the range of a layer's input, at either end: a static scale clamps what is beyond.
_SHARES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.3, 0.2)
# The number of rows of every layer's input that the alphas are tried on.
_TRIED_ROWS = 512
_TRIED_ROWS_OF_A_BATCH = 64
_TINY = 1e-29  # instead of a division by zero; the smallest scale is 2^-100
_SMALLEST = 1e-5  # relative to the largest; columns with smaller values are treated as this large


class InputScaling(NamedTuple):
    """How the input of a quantized layer becomes integers."""

    smoothing: np.ndarray | None = None  # float32 [in], the factor of each column; None for ones
    static_scale: np.ndarray | None = None  # float32 [2], scale and zero point; None for each row's


def calibration_batches(model: Any, name: str, texts: Any) -> Iterable[dict[str, tf.Tensor]]:
    """Returns texts as the token dictionaries of a model's backbone.

    Texts are a list, or a tuple of two for pairs; token dictionaries stay. `name` is for errors.

    Raises:
        UserError: If they are a dataset of texts, or the model has no tokenizer.
    """
    texts = materialize(texts, is_text)
    if yields_text(texts):
        expected = "be a list of texts, a tuple of two, or token dictionaries"
        raise user_error(f"`{name}`", expected, "a dataset of texts")
    if not holds_text(texts):
        return texts
    rule = f"must be given for text in `{name}`"
    fix = "Pass token dictionaries."
    require(model.tokenizer is not None, rule, UserError, fix, tokenizer=None)
    columns = as_columns(texts, model.tokenizer.errors)
    rows = TokenizedTexts.of(model.tokenizer, columns, model.max_sequence_length)
    return [rows.batch(numbers) for numbers in sorted_batches(rows)]


def calibrate(
    backbone, batches: Iterable[dict[str, tf.Tensor]], activations: str = DYNAMIC
) -> dict[Dense, InputScaling]:
    """Returns, for every dense layer of the encoder, the scaling with the smallest error.

    The candidates are no smoothing and, for several alphas, the columns of x times
    max|W|^(1 - alpha) / max|x|^alpha. A static scale covers all numbers that were seen, or less at
    either end. A layer gets the candidate whose quantized results are closest to the floating-point
    results on rows of the batches: some thousand tokens of text like the application's.

    Raises:
        UserError: If there is no batch, or the activations are not finite.

    Reference: Xiao et al. 2022 (arXiv 2211.10438), section 4, which chooses alpha in another way.
    """
    seen = {dense: SeenRows() for dense in backbone.encoder.dense_layers().values()}

    with observed_inputs(backbone, seen):
        for batch in batches:
            backbone(batch)
    if not all(rows.rows for rows in seen.values()):
        raise UserError("`calibration` must have at least one text. Received: none.")
    return {dense: best_scaling(dense, rows, activations)[1] for dense, rows in seen.items()}


@contextlib.contextmanager
def observed_inputs(backbone, seen: dict[Dense, "SeenRows"]) -> Iterator[None]:
    """While the context is active, the backbone computes on real tokens only and shows its inputs.

    Its dense layers add theirs to `seen`, but for calls in other threads.
    """
    padding_free, backbone.padding_free = backbone.padding_free, True
    for dense, rows in seen.items():
        dense.kernel_impl = _ObservedKernel(dense.kernel_impl, rows, threading.get_ident())
    try:
        yield
    finally:
        backbone.padding_free = padding_free
        for dense in seen:
            dense.kernel_impl = dense.kernel_impl.kernel


class _ObservedKernel(NamedTuple):
    """A kernel of a `Dense` whose inputs are added to `rows` in one thread."""

    kernel: Any
    rows: "SeenRows"
    thread: int
    fuses_feed_forward: bool = False

    def apply(self, x, epilogue):
        if threading.get_ident() == self.thread:
            self.rows.add(x)
        return self.kernel.apply(x, epilogue)


class SeenRows:
    """The range of every column of a layer's input, with zero, and some of its rows."""

    def __init__(self):
        self.least = self.largest = 0.0  # [in]
        self.rows = []

    def add(self, x):
        x = tf.cast(x, tf.float32).numpy()  # [R, in]
        if not np.isfinite(x).all():
            raise user_error("The activations of `calibration`", "be finite", "NaN or infinity")
        self.least = np.minimum(self.least, x.min(axis=0, initial=0.0))
        self.largest = np.maximum(self.largest, x.max(axis=0, initial=0.0))
        count = min(len(x), _TRIED_ROWS_OF_A_BATCH, _TRIED_ROWS - sum(map(len, self.rows)))
        if count > 0:
            self.rows.append(x[np.linspace(0, len(x) - 1, count).astype(int)])


def best_scaling(
    dense: Dense, seen: SeenRows, activations: str = DYNAMIC
) -> tuple[float, InputScaling]:
    """Returns the smallest relative error of the quantized layer, and its scaling."""
    kernel = tf.cast(tf.convert_to_tensor(dense.kernel), tf.float32)
    rows = tf.concat(seen.rows, axis=0)  # [n, in]
    expected = tf.matmul(rows, kernel)
    weights = tf.reduce_max(tf.abs(kernel), axis=1).numpy()
    columns = np.maximum(-seen.least, seen.largest)

    def with_error(packed, smoothing, static_scale=None):
        if static_scale is not None:
            packed = packed._replace(static_scale=tf.constant(static_scale))
        difference = ops.quantized_dense(rows, packed, dense.units) - expected
        error = float(tf.norm(difference) / tf.maximum(tf.norm(expected), _TINY))
        return np.nan_to_num(error, nan=np.inf), InputScaling(smoothing, static_scale)

    candidates = []
    for smoothing in [
        None,
        *(_smoothing(columns, weights, alpha) for alpha in _ALPHAS[activations]),
    ]:
        packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel, smoothing), smoothing)
        tried = functools.partial(with_error, packed, smoothing)
        if activations == DYNAMIC:
            candidates.append(tried())
            continue
        factors = np.float32(1.0) if smoothing is None else smoothing
        candidates += _static_candidates(
            tried, (seen.least * factors).min(), (seen.largest * factors).max()
        )
    return min(candidates, key=lambda candidate: candidate[0])


def _static_candidates(tried, least, largest):
    """Returns results of `tried` for several ranges: shares of the upper end, then of the lower."""
    upper = {share: tried(_static_scale(least, share * largest)) for share in _SHARES}
    best = min(upper, key=lambda share: upper[share][0])
    lower = [tried(_static_scale(share * least, best * largest)) for share in _SHARES[1:]]
    return [upper[best], *lower]


def _static_scale(least, largest):
    """Returns the scale and the zero point, float32 `[2]`, of the range with zero in it."""
    step = max((np.float64(largest) - least) / 255, _TINY)
    return np.array([step, np.round(-least / step)], np.float32)


def _smoothing(activations, weights, alpha):
    """Returns the smoothing, float32 `[in]`; its geometric mean is 1."""
    activations, weights = (
        np.log(np.maximum(values, max(values.max(), 1e-30) * _SMALLEST).astype(np.float64))
        for values in (activations, weights)
    )
    logarithms = (1 - alpha) * weights - alpha * activations
    return np.exp(logarithms - logarithms.mean()).astype(np.float32)


def quantization_errors(
    backbone, batches: Iterable[dict[str, tf.Tensor]], activations: str = DYNAMIC
) -> dict[str, float]:
    """Measures the error of every layer on real inputs, if only this layer were quantized.

    An error is the norm of the difference from the floating-point result, divided by the norm of
    that result. That of a dense layer is measured on up to 512 rows, with the scaling that
    calibration would choose.

    Args:
        backbone: A `BertBackbone` with its kernels.
        batches: Token dictionaries with a few thousand tokens of text like the application's.
        activations: "dynamic" or "static", as in `bert_tf.layers.Quantization`.

    Returns:
        The errors of the dense layers and of quantized attention, by the paths that
        `quantize(skip=…)` takes.

    Raises:
        UserError: If there is no batch, the activations are not finite, or the backbone has LoRA
            or is prepacked or quantized.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> errors = bert_tf.adapt.quantization_errors(
        ...     backbone, [{"token_ids": tf.constant([[2, 9, 10, 3]])}]
        ... )
        >>> list(errors)[:2]
        ['blocks.0.attention.query_key_value', 'blocks.0.attention_output']
    """
    backbone.require_kernels("measured")
    backbone.require_merged("measured")
    dense = backbone.encoder.dense_layers()
    scores = backbone.encoder.attention_layers()
    seen = {layer: SeenRows() for layer in dense.values()}
    attention = {layer: _SeenAttention() for layer in scores.values()}

    def observe(layer, *inputs):
        attention[layer].add(*inputs)

    with observed_inputs(backbone, seen):
        for batch in batches:
            backbone(batch, observe=observe)
    if not all(seen[layer].rows for layer in dense.values()):
        raise UserError("`batches` must have at least one token. Received: none.")
    errors = {
        path: best_scaling(layer, seen[layer], activations)[0] for path, layer in dense.items()
    }
    return {**errors, **{path: attention[layer].error() for path, layer in scores.items()}}


class _SeenAttention:
    """The squares of the norms of the results and of their errors."""

    def __init__(self):
        self._result = self._difference = 0.0

    def add(self, qkv, layout, rule):
        qkv = tf.cast(qkv, tf.float32)
        if rule.distance_bias is not None:
            rule = dataclasses.replace(rule, distance_bias=tf.cast(rule.distance_bias, tf.float32))
        expected = ops.varlen_attention(qkv, layout.row_splits, rule=rule)
        quantized = ops.quantized_attention(qkv, layout.row_splits, rule)
        self._result += float(tf.reduce_sum(tf.square(expected)))
        self._difference += float(tf.reduce_sum(tf.square(quantized - expected)))

    def error(self) -> float:
        return (self._difference / self._result) ** 0.5 if self._result else 0.0
