"""What real activations say about quantizing them: smoothing where it brings the results nearer."""

import contextlib
from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.errors import UserError
from bert_tf.layers.dense import Dense

# How much of the difference between a layer's columns the kernel takes over: SmoothQuant's alpha.
# Besides them, none at all.
_ALPHAS = (0.25, 0.5, 0.75)
# Rows of every layer's input that the alphas are tried on.
_TRIED_ROWS = 512
_TRIED_ROWS_OF_A_BATCH = 64
_SMALLEST = 1e-5  # relative to the largest; columns below it count as that large


def calibrate(backbone, batches: Iterable[dict[str, tf.Tensor]]) -> dict[Dense, np.ndarray]:
    """Finds, for every dense layer of the encoder, the smoothing that quantizes it best.

    The model runs on the batches in floating point. For each layer the candidates are no smoothing
    and, for some alphas, x's columns times max|W|^(1 - alpha) / max|x|^alpha; it gets the one whose
    results, quantized, are nearest to its own on rows of the batches.

    Args:
        backbone: A `BertBackbone` with its kernels.
        batches: Token dictionaries as the backbone takes them, of text like that to come; some
            thousand tokens suffice.

    Returns:
        The layers and their smoothing, float32 `[in]`; those that are best left alone are missing.

    Raises:
        UserError: If there is no batch, or the activations are not finite.

    Reference: Xiao et al. 2022 (arXiv 2211.10438), section 4; choosing alpha by the error of the
    layer is ours.
    """
    layers = [dense for block in backbone.encoder.blocks for dense in block.dense_layers().values()]
    seen = [_SeenRows() for _ in layers]
    with _observed(backbone, layers, seen):
        for batch in batches:
            backbone(batch)
    if not seen[0].rows:
        raise UserError("Expected at least one text to calibrate with. Received: none.")
    chosen = {dense: _best_smoothing(dense, rows) for dense, rows in zip(layers, seen)}
    return {dense: smoothing for dense, smoothing in chosen.items() if smoothing is not None}


class _SeenRows:
    """What is kept of a layer's input: every column's largest number, and some rows."""

    def __init__(self):
        self.largest = 0.0  # [in]
        self.rows = []
        self._count = 0

    def __call__(self, x):
        x = tf.cast(x, tf.float32).numpy()  # [R, in]
        if not np.isfinite(x).all():
            raise UserError(
                "Expected finite activations to calibrate with. Received: NaN or infinity"
            )
        self.largest = np.maximum(self.largest, np.abs(x).max(axis=0, initial=0.0))
        count = min(len(x), _TRIED_ROWS_OF_A_BATCH, _TRIED_ROWS - self._count)
        if count > 0:
            self.rows.append(x[np.linspace(0, len(x) - 1, count).astype(int)])
            self._count += count


@contextlib.contextmanager
def _observed(backbone, layers, observers):
    """Within it the layers show what they are given: the real tokens alone."""
    padding_free, backbone.padding_free = backbone.padding_free, True
    try:
        for dense, observer in zip(layers, observers):
            dense.observer = observer
        yield
    finally:
        for dense in layers:
            dense.observer = None
        backbone.padding_free = padding_free


def _best_smoothing(dense, seen):
    kernel = tf.cast(tf.convert_to_tensor(dense.kernel), tf.float32)
    rows = tf.concat(seen.rows, axis=0)  # [n, in]
    expected = tf.matmul(rows, kernel)
    weights = tf.reduce_max(tf.abs(kernel), axis=1).numpy()
    candidates = [None, *(_smoothing(seen.largest, weights, alpha) for alpha in _ALPHAS)]
    errors = [_error(rows, kernel, dense.units, s, expected) for s in candidates]
    return candidates[int(np.argmin(errors))]


def _smoothing(activations, weights, alpha):
    """float32 `[in]`, 1 on the geometric mean."""
    activations, weights = (
        np.log(np.maximum(values, max(values.max(), 1e-30) * _SMALLEST).astype(np.float64))
        for values in (activations, weights)
    )
    logarithms = (1 - alpha) * weights - alpha * activations
    return np.exp(logarithms - logarithms.mean()).astype(np.float32)


def _error(rows, kernel, units, smoothing, expected):
    packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel, smoothing), smoothing)
    difference = ops.quantized_dense(rows, packed, units) - expected
    return float(tf.reduce_mean(tf.square(difference)))
