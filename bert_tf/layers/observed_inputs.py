"""Lets a calibration observe the inputs of dense layers and of attention."""

import contextlib
import contextvars
from collections.abc import Callable, Iterator

import keras
import tensorflow as tf

Observer = Callable[..., None]

_observer: contextvars.ContextVar[Observer | None] = contextvars.ContextVar(
    "observer", default=None
)


@contextlib.contextmanager
def observed_inputs(observer: Observer) -> Iterator[None]:
    """While the context is active, every layer of the encoder that is called shows its input.

    Calls in other threads are not observed.

    Args:
        observer: A function that is called with a `Dense` layer and its input `[R, in]`, or with a
            `BertSelfAttention`, its `qkv` `[R, 3, n, D]` and their `TokenLayout`.

    Example:
        >>> dense = bert_tf.layers.Dense(4)
        >>> with observed_inputs(lambda layer, x, *_: print(layer is dense, x.shape)):
        ...     y = dense(tf.ones([3, 2]))
        True (3, 2)
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def observe(layer: keras.layers.Layer, *inputs: tf.Tensor) -> None:
    """Shows the inputs of a layer to the observer of `observed_inputs`, if there is one."""
    observer = _observer.get()
    if observer is not None:
        observer(layer, *inputs)
