"""Sparse vectors as matrices of scipy, and their terms as words.

Glossary: `n` texts, `V` vocabulary.
"""

from typing import Any, NamedTuple

import numpy as np

from bert_tf.base.json_schema import is_integer
from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_array
from bert_tf.errors import UserError, require, user_error


class WeightedTerm(NamedTuple):
    """A piece of the vocabulary and its weight in a text.

    Example:
        >>> WeightedTerm("paris", 1.5).piece
        'paris'
    """

    piece: str
    weight: float


def sparse_module():
    """Returns `scipy.sparse`.

    Raises:
        UserError: If scipy is not installed.
    """
    return require_package("scipy.sparse", "sparse vectors")


def sparse_rows(vectors: Any, size: int, name: str):
    """Returns vectors as a `scipy.sparse.csr_array` `[n, V]` of its own, without stored zeros.

    They are a sparse matrix or an array `[n, V]`, or one vector `[V]`; `size` is V, and `name`
    theirs in an error.

    Raises:
        UserError: If they have another shape, are no numbers, or scipy is not installed.
    """
    sparse = sparse_module()
    rows = vectors if sparse.issparse(vectors) else as_array(vectors, name)
    rows = rows.reshape(1, -1) if rows.ndim == 1 else rows
    if rows.ndim != 2 or rows.shape[1] != size:
        expected = f"be [n, {size}], with a column for each piece of the vocabulary"
        raise user_error(f"`{name}`", expected, f"{name}.shape={rows.shape}")
    rows = sparse.csr_array(rows, copy=True)
    rows.eliminate_zeros()
    return rows


def strongest(vectors: np.ndarray, count: int | None) -> np.ndarray:
    """Returns vectors `[n, V]` with the `count` largest weights of each; None for all."""
    if count is None or count >= vectors.shape[1]:
        return vectors
    others = np.argpartition(-vectors, count - 1, axis=1)[:, count:]  # [n, V - count]
    vectors = vectors.copy()
    np.put_along_axis(vectors, others, 0.0, axis=1)
    return vectors


def require_count(name: str, count: Any) -> None:
    """Raises `UserError` unless `count` is None or an integer of at least 1."""
    rule = "must be None or an integer of at least 1"
    require(count is None or (is_integer(count) and count >= 1), rule, UserError, **{name: count})


def weighted_terms(rows, pieces: list[str], top_k: int | None) -> list[list[WeightedTerm]]:
    """Returns the terms of each row of a CSR matrix, the largest weight first."""
    found = []
    for start, end in zip(rows.indptr, rows.indptr[1:]):
        ids, weights = rows.indices[start:end], rows.data[start:end]
        order = np.lexsort((ids, -weights))[:top_k]
        found.append([WeightedTerm(pieces[ids[i]], float(weights[i])) for i in order])
    return found
