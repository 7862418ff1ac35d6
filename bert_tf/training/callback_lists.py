"""The argument `callbacks` of `fit`."""

from typing import Any

import keras


def with_callback(callbacks: Any, callback: keras.callbacks.Callback) -> Any:
    """Returns the `callbacks` of `fit` with another one after them."""
    if isinstance(callbacks, keras.callbacks.CallbackList):
        callbacks.append(callback)
        return callbacks
    if not isinstance(callbacks, (list, tuple)):
        callbacks = [] if callbacks is None else [callbacks]
    return [*callbacks, callback]
