"""What an entry of the table of the ops holds, and how results are compared with float64."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import ops
from tests.conformance.tasks import Lack

# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}


class Bounds(NamedTuple):
    """How far a result may be from float64, in addition to the rounding of each number.

    Attributes:
        relative: Times each number.
        absolute: For every number.
        roundings: For every number, times the rounding of the type and the largest number (with
            it, `absolute` is times the largest number too): where rounded numbers are summed.
    """

    relative: float
    absolute: float
    roundings: int = 0


@dataclasses.dataclass(frozen=True)
class Op:
    """What the tests need to know of an op.

    Attributes:
        function: The public function.
        arguments: Makes its tensors by name, of `normal(*shape, mean, scale)` and a shape; and the
            number of units, which goes with a shape.
        formula: The result and the gradients by name in float64, of the tensors in float64 and
            the options.
        shapes: Shapes to compare with the formula in every dtype.
        more_shapes: More of them in float32.
        empty: Likewise, for results of nothing.
        small: A shape for the tests of everything else.
        fewer: The same but for the number of rows.
        large: The same with many rows.
        bounds: Of the result; None: it is the formula's to the bit.
        options: Arguments that are no tensors.
        rows: The tensors that have the rows of the result.
        gradient_bounds: Of the gradients.
        sum_bounds: Of those that are sums over rows.
        mixes_columns: What is not finite spreads over its row.
        lacks: What the op does not have.
    """

    function: Callable
    arguments: Callable
    formula: Callable
    shapes: tuple
    empty: tuple
    small: tuple
    fewer: tuple
    large: tuple
    bounds: Bounds | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rows: tuple[str, ...] = ("x",)
    gradient_bounds: Bounds | None = None
    sum_bounds: Bounds | None = None
    mixes_columns: bool = True
    more_shapes: tuple = ()
    lacks: Mapping[str, Lack] = dataclasses.field(default_factory=dict)

    @property
    def reference(self) -> Callable:
        """The public function of the reference implementation."""
        return getattr(ops, f"{self.function.__name__}_reference")

    def at(self, shape, dtype=tf.float32) -> tuple["Op", dict]:
        """The op for a shape, or for that of a name, and its tensors, their numbers random."""
        shape = getattr(self, shape) if isinstance(shape, str) else shape
        random = np.random.default_rng(0)

        def normal(*shape, mean=0.0, scale=1.0):
            return tf.cast(random.normal(size=shape) * scale + mean, dtype)

        tensors = self.arguments(normal, shape)
        if "units" not in tensors:
            return self, tensors
        options = {**self.options, "units": tensors.pop("units")}
        return dataclasses.replace(self, options=options), tensors

    def __call__(self, tensors: Mapping) -> tf.Tensor:
        return self.function(**tensors, **self.options)

    def parts(self, tensors: Mapping) -> list[slice]:
        """The rows of the result that do not see the others: one each, or those of a sequence."""
        if "row_splits" in tensors:
            splits = tensors["row_splits"].numpy().tolist()
        else:
            splits = range(len(tensors[self.rows[0]]) + 1)
        return list(map(slice, splits[:-1], splits[1:]))

    def with_gradients(self, tensors: Mapping, function: Callable | None = None) -> list:
        """The result, and the gradients by name of the sum of the result times `dy_of` it."""
        function = function or self.function
        if "gradient" in self.lacks:
            return function(**tensors, **self.options), {}
        sources = {name: value for name, value in tensors.items() if is_float(value)}
        with tf.GradientTape() as tape:
            tape.watch(sources)
            y = function(**tensors, **self.options)
        gradients = tape.gradient(y, sources, output_gradients=dy_of(y))
        # The reference of attention gathers rows, whose gradient is IndexedSlices.
        return y, {name: tf.convert_to_tensor(value) for name, value in gradients.items()}

    def expected(self, tensors: Mapping) -> tuple[np.ndarray, dict]:
        """The same in float64."""
        numbers = tf.nest.map_structure(float64, dict(tensors))
        return self.formula(**numbers, **self.options)

    def assert_right(self, tensors: Mapping, y, gradients: Mapping, expected=None) -> None:
        """A result and its gradients are those of the formula."""
        wanted, wanted_gradients = expected or self.expected(tensors)
        dtype = next(value.dtype for value in tensors.values() if is_float(value))
        assert_near(y, wanted, dtype, self.bounds)
        for name, gradient in gradients.items():
            is_sum = len(gradient.shape) < len(wanted.shape)
            bounds = self.sum_bounds if is_sum else self.gradient_bounds
            assert_near(gradient, wanted_gradients[name], dtype, bounds)


def is_float(value) -> bool:
    """Whether it is a tensor (or variable) that the op is differentiated by, if by any."""
    return hasattr(value, "dtype") and value.dtype in ROUNDING


def float64(tensor) -> np.ndarray:
    """A tensor in NumPy, numbers in float64 and integers as they are."""
    return tf.cast(tensor, tf.float64).numpy() if is_float(tensor) else tensor.numpy()


def dy_of(y: tf.Tensor) -> tf.Tensor:
    """What comes into the gradient of a result: numbers that every dtype holds exactly."""
    numbers = tf.cast(tf.range(tf.size(y)) * 7 % 31 - 15, y.dtype) / 8
    return tf.reshape(numbers, tf.shape(y))


def dy_in_numpy(*shape: int) -> np.ndarray:
    """The same for a shape, in float64."""
    return ((np.arange(np.prod(shape)) * 7 % 31 - 15) / 8).reshape(shape)


def assert_near(received, expected, dtype, bounds: Bounds | None) -> None:
    """A tensor is what float64 says, in the dtype it must have."""
    assert received.dtype == dtype
    assert received.shape == expected.shape
    if bounds is None:
        np.testing.assert_array_equal(float64(received), expected)
        return
    rounding = ROUNDING[dtype]
    largest = np.abs(expected).max(initial=1.0) if bounds.roundings else 1.0
    np.testing.assert_allclose(
        float64(received),
        expected,
        rtol=rounding + bounds.relative,
        # A number too small for the dtype is zero.
        atol=largest * (bounds.absolute + bounds.roundings * rounding) + _smallest(dtype),
    )


def _smallest(dtype) -> float:
    return 2.0**-24 if dtype == tf.float16 else 2.0**-133


def assert_same_bits(received, expected) -> None:
    """Two nests of tensors or arrays are equal, NaN where NaN is."""
    tf.nest.assert_same_structure(received, expected)
    for one, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected)):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
