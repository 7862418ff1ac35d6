"""The initial weights of the network: random ones, or none where a checkpoint's follow at once.

Random numbers for the 110 million weights of BERT-base take seconds, longer than reading them.
"""

import contextlib
import contextvars
from collections.abc import Iterator

import keras
import tensorflow as tf

_backbone_is_loaded = contextvars.ContextVar("backbone_is_loaded", default=False)
_weights_are_loaded = contextvars.ContextVar("weights_are_loaded", default=False)


@contextlib.contextmanager
def loading_backbone(is_loaded: bool = True) -> Iterator[None]:
    """Says that all weights of a backbone's embeddings and blocks are assigned after it is made."""
    token = _backbone_is_loaded.set(is_loaded)
    try:
        yield
    finally:
        _backbone_is_loaded.reset(token)


@contextlib.contextmanager
def zeros_if_loading() -> Iterator[None]:
    """Makes weights zeros in the block if `loading_backbone` is in effect."""
    token = _weights_are_loaded.set(_backbone_is_loaded.get())
    try:
        yield
    finally:
        _weights_are_loaded.reset(token)


def truncated_normal(stddev: float) -> keras.initializers.Initializer:
    """Returns google-research/bert's initializer of embeddings and kernels, or that of zeros."""
    # Always made: it draws a seed, so weights that are not loaded do not depend on the others.
    initializer = _TruncatedNormal(stddev=stddev)
    return keras.initializers.Zeros() if _weights_are_loaded.get() else initializer


class _TruncatedNormal(keras.initializers.TruncatedNormal):
    """Draws the numbers of Keras, without its ops that make a seed of an integer."""

    def __call__(self, shape, dtype=None):
        seed, stddev = [self.seed, 0], self.stddev
        return tf.random.stateless_truncated_normal(shape, seed, stddev=stddev, dtype=dtype)
