"""The vectors of the tokens of texts, packed: what late interaction compares.

Glossary: `n` texts, `S` tokens of all of them, `D` size of a vector.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.search.best_rows import numbers


@dataclasses.dataclass(frozen=True, eq=False)
class TokenVectors:
    """A vector for each token of n texts, one text after the other, without padding.

    `len(vectors)` is n, `vectors[i]` the array `[tokens, D]` of a text, and `vectors[i:j]` the
    `TokenVectors` of some texts.

    Args:
        vectors: Floats `[S, D]`; can be a `np.memmap`.
        row_splits: Integers `[n + 1]`: where each text begins, and S at the end, as in
            `tf.RaggedTensor`. Every text has a vector.

    Raises:
        UserError: If the shapes do not fit, or a text has no vector.

    Example:
        >>> vectors = TokenVectors(np.eye(3, dtype=np.float32), [0, 2, 3])
        >>> len(vectors), vectors[0].shape, len(vectors[:1])
        (2, (2, 3), 1)
    """

    vectors: np.ndarray
    row_splits: np.ndarray

    def __post_init__(self):
        vectors = numbers(self.vectors, "vectors")
        splits = np.asarray(self.row_splits)
        is_valid = vectors.ndim == 2 and splits.ndim == 1 and splits.dtype.kind in "iu"
        is_valid = is_valid and splits.size > 0 and splits[0] == 0 and splits[-1] == len(vectors)
        if not is_valid or np.any(np.diff(splits.astype(np.int64)) < 1):
            raise UserError(
                "`vectors` must be [S, D], and `row_splits` integers [n + 1] that begin with 0, "
                "end with S and increase, because every text has a vector. Received: "
                f"vectors.shape={vectors.shape}, row_splits={splits}"
            )
        object.__setattr__(self, "vectors", vectors)
        object.__setattr__(self, "row_splits", splits.astype(np.int64))

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    def __getitem__(self, index):
        if not isinstance(index, slice):
            index = range(len(self))[index]
            return self.vectors[self.row_splits[index] : self.row_splits[index + 1]]
        start, stop, step = index.indices(len(self))
        if step != 1:
            raise UserError(f"`vectors[i:j]` must have the step 1. Received: step={step}")
        splits = self.row_splits[start : max(start, stop) + 1]
        return TokenVectors(self.vectors[splits[0] : splits[-1]], splits - splits[0])

    @property
    def longest(self) -> int:
        """The largest number of vectors of a text; 0 without texts."""
        return int(np.diff(self.row_splits).max(initial=0))

    def ragged(self) -> tf.RaggedTensor:
        """Returns them as a ragged tensor float32 `[n, (tokens), D]`."""
        vectors = tf.constant(np.asarray(self.vectors, np.float32))
        return tf.RaggedTensor.from_row_splits(vectors, self.row_splits)
