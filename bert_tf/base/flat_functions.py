"""Traced functions whose calls cost little.

A call of a `tf.function` binds its arguments and compares their types, and takes a RaggedTensor
apart by its type: up to four milliseconds for a few ragged tensors, as long as a small network.
Here, only plain tensors go in and out, and outside of a graph nothing is bound or compared.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf


class FlatFunction:
    """A function of tensors of any sizes that is traced once, by the first call.

    Args:
        function: A function of tensors, RaggedTensors, and tuples, lists and dictionaries of them.
            Its results are such structures too, and may hold None.
        signature: The specifications of the arguments.
        jit_compile: See `tf.function`.
        device: Where the function is computed; None leaves it to TensorFlow.

    Example:
        >>> double = FlatFunction(lambda x: {"y": 2.0 * x}, [tf.TensorSpec([None])])
        >>> double(tf.constant([1.0, 2.0]))["y"].numpy()
        array([2., 4.], dtype=float32)
    """

    def __init__(
        self,
        function: Callable,
        signature: list,
        jit_compile: bool | None = None,
        device: str | None = None,
    ):
        self._function = function
        self._placed = functools.partial(tf.device, device) if device else contextlib.nullcontext
        self._signature = signature
        self._dtypes = [spec.dtype for spec in _parts(signature)]
        self._jit_compile = jit_compile
        self._lock = threading.RLock()  # held while the function is traced, which may call others
        self._traced = self._results = None
        self._captured = ()  # what the graph reads from outside, such as the handles of variables

    def __call__(self, *args: Any) -> Any:
        """Returns what the function returns; the arguments have the structure of the signature."""
        if tf.config.functions_run_eagerly():
            with self._placed():
                return self._function(*args)
        if self._traced is None:
            with self._lock, tf.init_scope():
                if self._traced is None:
                    traced = self._trace()
                    self._captured = traced.captured_inputs
                    self._traced = traced
        tensors = map(_tensor, _parts(args), self._dtypes)
        if tf.executing_eagerly():
            results = self._traced.inference_fn.call_flat(*tensors, *self._captured) or ()
        else:
            results = self._traced(*tensors)
        return _rebuilt(self._results, iter(results))

    def _trace(self):
        def flat(*tensors):
            with self._placed():
                self._results = self._function(*_rebuilt(self._signature, iter(tensors)))
            return list(_parts(self._results))

        options = {"autograph": False, "jit_compile": self._jit_compile}
        return tf.function(flat, list(_parts(self._signature)), **options).get_concrete_function()


def _tensor(value: Any, dtype: tf.DType) -> tf.Tensor:
    return value if isinstance(value, tf.Tensor) else tf.constant(value, dtype)


def _parts(value: Any) -> Iterator[Any]:
    """Yields the plain tensors, or specifications, of a structure."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _parts(part)
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _parts(value[name])
    elif isinstance(value, tf.RaggedTensor):
        yield from _parts(value.values)
        yield value.row_splits
    elif isinstance(value, tf.RaggedTensorSpec):
        yield tf.TensorSpec([None, *value.shape[2:]], value.dtype)
        yield tf.TensorSpec([None], value.row_splits_dtype)
    elif value is not None:
        yield value


def _rebuilt(like: Any, tensors: Iterator[tf.Tensor]) -> Any:
    """Returns plain tensors in a structure like that of other tensors or specifications."""
    if isinstance(like, (tuple, list)):
        parts = [_rebuilt(part, tensors) for part in like]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    if isinstance(like, dict):
        return {name: _rebuilt(like[name], tensors) for name in sorted(like)}
    if isinstance(like, (tf.RaggedTensor, tf.RaggedTensorSpec)):
        nested = like.values if isinstance(like, tf.RaggedTensor) else ()
        values = _rebuilt(nested, tensors) if isinstance(nested, tf.RaggedTensor) else next(tensors)
        return tf.RaggedTensor.from_row_splits(values, next(tensors), validate=False)
    return None if like is None else next(tensors)
