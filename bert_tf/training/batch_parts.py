"""The parts of a batch that gradient accumulation works through, of equal size to one row."""

import tensorflow as tf


class BatchParts:
    """Cuts a batch into parts; with fewer rows than parts, there are as many parts as rows.

    Args:
        data: Inputs, labels and sample weights: nests of tensors `[B, ...]`, or None.
        count: The number of parts, an int or a scalar int32.

    Attributes:
        num_rows: B, an int where it is static.
        count: The number of parts that have rows, an int where B is static.
        is_static: Whether B is static.
    """

    def __init__(self, data, count: int | tf.Tensor):
        self.data = data
        self.num_rows = num_rows(data[0])
        self.is_static = not tf.is_tensor(self.num_rows)
        self.count = (min if self.is_static else tf.minimum)(count, self.num_rows)
        self._size = None  # of every part, where it is always the same
        if self.is_static and self.num_rows % max(self.count, 1) == 0:
            self._size = self.num_rows // max(self.count, 1)

    def __getitem__(self, index):
        """Returns the data of a part; an index of at least `count` gives no rows."""
        if self.is_static:
            count, last = max(self.count, 1), index + 1
        else:
            count = tf.maximum(self.count, 1)
            index, last = tf.minimum(index, count), tf.minimum(index + 1, count)
        start, end = index * self.num_rows // count, last * self.num_rows // count
        return map_values(lambda values: self._rows(values, start, end), self.data)

    def _rows(self, values, start, end):
        if self._size is None:
            return values[start:end]
        rest = [-1 if length is None else length for length in values.shape[1:]]  # -1: all
        return tf.slice(values, [start, *[0] * len(rest)], [self._size, *rest])


def num_rows(x) -> int | tf.Tensor:
    """Returns the number of rows of a nest of tensors."""
    first = next(values for values in tf.nest.flatten(x) if values is not None)
    return first.shape[0] if first.shape[0] is not None else tf.shape(first)[0]


def map_values(function, structure):
    """`tf.nest.map_structure` that leaves None alone."""
    return tf.nest.map_structure(lambda v: None if v is None else function(v), structure)
