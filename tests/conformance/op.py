"""What an entry of the table of the ops holds, and how results are compared with float64."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf import ops
from tests.conformance.task import Lack

# Relative error of storing a result.
ROUNDING = {tf.float32: 2.0**-24, tf.bfloat16: 2.0**-8, tf.float16: 2.0**-11}

SEED = -0x0123456789ABCDEF

# What several ops lack.
BY_ROW = {"rows alone": Lack("dropout draws by the number of a row")}
INTEGERS = {"gradient": Lack("rounding has none", "Train in floating point")}


class Bounds(NamedTuple):
    """How far each number of a result may be from float64.

    The bounds are added up, and so is one rounding of the number to the dtype.

    Attributes:
        relative: A factor of the number itself.
        absolute: The same for every number.
        of_largest: A factor of the largest number of the tensor, or of 1 if that is larger.
        roundings: Multiplies the rounding error of the dtype, and is then a factor as `of_largest`
            is: for sums of numbers that have been rounded to the dtype.
    """

    relative: float = 0.0
    absolute: float = 0.0
    of_largest: float = 0.0
    roundings: int = 0


@dataclasses.dataclass(frozen=True)
class Op:
    """What the tests need to know of an op.

    Attributes:
        function: The public function.
        arguments: Called with `normal(*shape, mean=0.0, scale=1.0)`, which makes a random tensor,
            and with a shape. Returns the tensors by name and, where the shape contains it, the
            option `units`.
        formula: Called with the tensors as NumPy arrays, numbers in float64, and with the options.
            Returns the result and the gradients by name, in float64.
        formula_takes_dtypes: Whether the formula takes the dtypes of the tensors by name, too, as
            `dtypes`.
        shapes: Shapes to compare with the formula in every dtype.
        empty: Shapes with a size of 0, to compare with the formula in float32.
        small: The shape for most of the other tests.
        fewer: `small` with fewer rows; `small` itself if the op has no rows.
        large: A shape with many rows, for tests of single rows, threads and buffers.
        bounds: How far the result may be from the formula; None: both must be equal.
        options: Arguments that are not tensors.
        rows: The names of the tensors that have one row for each row of the result.
        row_splits: For an op with sequences: by the name of each tensor with their rows, the name
            of its row splits. The first tensor is one of `rows`.
        gradient_bounds: How far the gradients may be from the formula.
        sum_bounds: The same for gradients that are sums over rows.
        spreads_nan: Whether one NaN in a row of the first tensor of `rows` makes the whole row of
            the result NaN.
        spreads_infinity: Whether one infinity there makes the whole row of the result NaN.
        more_shapes: Further shapes to compare with the formula, in float32 only.
        says: What the error about the shape of a tensor says, where that is not its last size.
        lacks: What the op does not have, by the names that `every_op` takes.
        only_values: Whether the entry is tested by `test_values_and_gradients` alone, and without
            `empty`: for variants whose code the other tests reach through another entry.
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
    row_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gradient_bounds: Bounds | None = None
    sum_bounds: Bounds | None = None
    spreads_nan: bool = True
    spreads_infinity: bool = True
    more_shapes: tuple = ()
    says: Mapping[str, str] = dataclasses.field(default_factory=dict)
    lacks: Mapping[str, Lack] = dataclasses.field(default_factory=dict)
    only_values: bool = False
    formula_takes_dtypes: bool = False

    @property
    def reference(self) -> Callable:
        """The public function of the reference implementation."""
        return getattr(ops, f"{self.function.__name__}_reference")

    def at(self, shape, dtype=tf.float32) -> tuple["Op", dict]:
        """The op for a shape ("small", "fewer", "large" or any other) and its random tensors."""
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
        """The rows of each sequence or, for an op without sequences, each single row.

        The result for one part does not depend on the other parts.
        """
        if self.row_splits:
            return self._sequences(tensors, self.rows[0])
        splits = range(len(tensors[self.rows[0]]) + 1)
        return list(map(slice, splits[:-1], splits[1:]))

    def _sequences(self, tensors: Mapping, name: str) -> list[slice]:
        splits = tensors[self.row_splits[name]].numpy().tolist()
        return list(map(slice, splits[:-1], splits[1:]))

    def alone(self, tensors: Mapping, part: int) -> dict:
        """The tensors of one of the `parts`."""
        if not self.row_splits:
            rows = self.parts(tensors)[part]
            return {n: t[rows] if n in self.rows else t for n, t in tensors.items()}
        alone = dict(tensors)
        for name, splits in self.row_splits.items():
            alone[name] = tensors[name][self._sequences(tensors, name)[part]]
            alone[splits] = tf.constant([0, len(alone[name])], tensors[splits].dtype)
        return alone

    def has_rows(self, name: str) -> bool:
        """Whether the number of rows of this tensor may change from call to call."""
        return name in self.rows or name in {*self.row_splits, *self.row_splits.values()}

    def with_gradients(
        self, tensors: Mapping, function: Callable | None = None
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """The result y, and the gradients by name; the gradient that arrives at y is `dy_of(y)`."""
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
        """The result and the gradients by name that the formula gives, in float64."""
        numbers = tf.nest.map_structure(float64, dict(tensors))
        if self.formula_takes_dtypes:
            numbers["dtypes"] = {name: value.dtype for name, value in tensors.items()}
        return self.formula(**numbers, **self.options)

    def assert_right(self, tensors: Mapping, y, gradients: Mapping, expected=None) -> None:
        """Asserts that a result and its gradients are as near to the formula's as they must be."""
        wanted, wanted_gradients = expected or self.expected(tensors)
        dtype = next(value.dtype for value in tensors.values() if is_float(value))
        assert_near(y, wanted, dtype, self.bounds)
        for name, gradient in gradients.items():
            is_sum = len(gradient.shape) < len(wanted.shape)
            bounds = self.sum_bounds if is_sum else self.gradient_bounds
            assert_near(gradient, wanted_gradients[name], dtype, bounds)


def is_float(value) -> bool:
    """Whether it is a tensor or variable of a float dtype that the ops take."""
    return hasattr(value, "dtype") and value.dtype in ROUNDING


def float64(tensor) -> np.ndarray:
    """A tensor as a NumPy array: floats in float64, integers in their own dtype."""
    return tf.cast(tensor, tf.float64).numpy() if is_float(tensor) else tensor.numpy()


def dy_of(y: tf.Tensor) -> tf.Tensor:
    """The gradient that arrives at a result y: numbers that every dtype holds exactly."""
    numbers = tf.cast(tf.range(tf.size(y)) * 7 % 31 - 15, y.dtype) / 8
    return tf.reshape(numbers, tf.shape(y))


def dy_in_numpy(*shape: int) -> np.ndarray:
    """`dy_of` a result of this shape, in float64."""
    return ((np.arange(np.prod(shape)) * 7 % 31 - 15) / 8).reshape(shape)


def assert_near(received, expected, dtype, bounds: Bounds | None) -> None:
    """Asserts that a tensor has this dtype, and the shape and nearly the numbers of `expected`."""
    assert received.dtype == dtype
    assert received.shape == expected.shape
    if bounds is None:
        np.testing.assert_array_equal(float64(received), expected)
        return
    rounding = ROUNDING[dtype]
    of_largest = bounds.of_largest + bounds.roundings * rounding
    absolute = bounds.absolute + of_largest * np.abs(expected).max(initial=1.0)
    np.testing.assert_allclose(
        float64(received),
        expected,
        rtol=rounding + bounds.relative,
        atol=absolute + _smallest(dtype),  # a number too small for the dtype becomes zero
    )


def _smallest(dtype) -> float:
    return 2.0**-24 if dtype == tf.float16 else 2.0**-133


def assert_same_bits(received, expected) -> None:
    """Asserts that two nests of tensors or arrays are equal, with NaN in the same places."""
    tf.nest.assert_same_structure(received, expected)
    for one, other in zip(tf.nest.flatten(received), tf.nest.flatten(expected)):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
