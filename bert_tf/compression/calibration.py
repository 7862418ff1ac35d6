"""Calibration: finds the smoothing that makes the quantized layers most accurate on real text."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense
from bert_tf.layers.observed_inputs import Observer, observed_inputs

# SmoothQuant's alpha: how much of the columns' differences is moved into the kernel.
_ALPHAS = (0.25, 0.5, 0.75)
# The number of rows of every layer's input that the alphas are tried on.
_TRIED_ROWS = 512
_TRIED_ROWS_OF_A_BATCH = 64
_TINY = 1e-30  # instead of a division by zero
_SMALLEST = 1e-5  # relative to the largest; columns with smaller values are treated as this large


def calibrate(backbone, batches: Iterable[dict[str, tf.Tensor]]) -> dict[Dense, np.ndarray]:
    """Finds, for every dense layer of the encoder, the smoothing with the smallest error.

    The candidates are no smoothing and, for several alphas, the columns of x times
    max|W|^(1 - alpha) / max|x|^alpha. A layer gets the candidate whose quantized results are
    closest to the floating-point results on rows of the batches.

    Args:
        backbone: A `BertBackbone` with its kernels.
        batches: Token dictionaries with a few thousand tokens of text like the application's.

    Returns:
        The smoothing, float32 `[in]`, of the layers for which some smoothing is best.

    Raises:
        UserError: If there is no batch, or the activations are not finite.

    Reference: Xiao et al. 2022 (arXiv 2211.10438), section 4, which does not choose alpha so.
    """
    seen = {dense: SeenRows() for dense in backbone.encoder.dense_layers().values()}

    def observe(layer, x, *_):
        if layer in seen:  # the pooler has a dense layer too
            seen[layer].add(x)

    observe_batches(backbone, batches, observe)
    if not all(rows.rows for rows in seen.values()):
        raise UserError("`calibration` must have at least one text. Received: none.")
    chosen = {dense: best_smoothing(dense, rows)[1] for dense, rows in seen.items()}
    return {dense: smoothing for dense, smoothing in chosen.items() if smoothing is not None}


def observe_batches(backbone, batches: Iterable, observer: Observer) -> None:
    """Computes the real tokens of the batches while `observer` sees what goes into the layers."""
    padding_free = backbone.padding_free
    backbone.padding_free = True
    try:
        with observed_inputs(observer):
            for batch in batches:
                backbone(batch)
    finally:
        backbone.padding_free = padding_free


class SeenRows:
    """The largest absolute value of every column of a layer's input, and some of its rows."""

    def __init__(self):
        self.largest = 0.0  # [in]
        self.rows = []

    def add(self, x):
        x = tf.cast(x, tf.float32).numpy()  # [R, in]
        if not np.isfinite(x).all():
            raise UserError(
                "The activations of `calibration` must be finite. Received: NaN or infinity"
            )
        self.largest = np.maximum(self.largest, np.abs(x).max(axis=0, initial=0.0))
        count = min(len(x), _TRIED_ROWS_OF_A_BATCH, _TRIED_ROWS - sum(map(len, self.rows)))
        if count > 0:
            self.rows.append(x[np.linspace(0, len(x) - 1, count).astype(int)])


def best_smoothing(dense: Dense, seen: SeenRows) -> tuple[float, np.ndarray | None]:
    """Returns the smallest relative error of the quantized layer, and its smoothing `[in]`."""
    kernel = tf.cast(tf.convert_to_tensor(dense.kernel), tf.float32)
    rows = tf.concat(seen.rows, axis=0)  # [n, in]
    expected = tf.matmul(rows, kernel)
    weights = tf.reduce_max(tf.abs(kernel), axis=1).numpy()
    candidates = [None, *(_smoothing(seen.largest, weights, alpha) for alpha in _ALPHAS)]

    def error(smoothing):
        packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel, smoothing), smoothing)
        difference = ops.quantized_dense(rows, packed, dense.units) - expected
        return float(tf.norm(difference) / tf.maximum(tf.norm(expected), _TINY))

    errors = [error(smoothing) for smoothing in candidates]
    best = int(np.argmin(np.nan_to_num(errors, nan=np.inf)))
    return errors[best], candidates[best]


def _smoothing(activations, weights, alpha):
    """Returns the smoothing, float32 `[in]`; its geometric mean is 1."""
    activations, weights = (
        np.log(np.maximum(values, max(values.max(), 1e-30) * _SMALLEST).astype(np.float64))
        for values in (activations, weights)
    )
    logarithms = (1 - alpha) * weights - alpha * activations
    return np.exp(logarithms - logarithms.mean()).astype(np.float32)
