"""The best rows of a matrix that is scored block by block, and checks of vectors."""

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

# Floats in a block of scores or of vectors: 32 MiB.
BLOCK = 8 * 2**20
QUERIES = 1024


def query_slices(num_queries: int) -> list[slice]:
    """Returns the parts of the queries that are scored together."""
    return [slice(start, start + QUERIES) for start in range(0, num_queries, QUERIES)]


def best_rows(
    num_queries: int, num_rows: int, k: int, block: int, scores_of: Callable
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows with the highest scores for each query.

    Args:
        num_queries: Q.
        num_rows: Rows of the matrix, at least 1.
        k: The number of rows to find.
        block: Rows that are scored at once.
        scores_of: Returns the scores `[Q, rows]` of a slice of rows.

    Returns:
        Scores and row numbers int64, both `[Q, min(k, num_rows)]`, the best row first; of equal
        scores, the smaller number first.
    """
    scores, rows = None, np.zeros([num_queries, 0], np.int64)
    for start in range(0, num_rows, block):
        candidates = scores_of(slice(start, min(start + block, num_rows)))
        if scores is not None:
            # The best rows so far come first, because top_k prefers the first of equal values.
            candidates = tf.concat([scores, candidates], axis=1)
        best = tf.math.top_k(candidates, min(k, candidates.shape[1]))
        columns = best.indices.numpy()  # [Q, k]
        old = np.pad(rows, [(0, 0), (0, 1)])  # one more column, so that there is at least one
        kept = np.take_along_axis(old, np.minimum(columns, rows.shape[1]), axis=1)
        rows = np.where(columns < rows.shape[1], kept, columns - rows.shape[1] + start)
        scores = best.values.numpy()
    return scores, rows


def matrix(vectors: np.ndarray, name: str) -> np.ndarray:
    """Returns vectors `[n, dim]` as an array; a `np.memmap` is not read.

    Raises:
        UserError: If they have another shape. The message has their `name`.
    """
    if not isinstance(vectors, np.ndarray):
        vectors = np.asarray(vectors, np.float32)
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise UserError(f"`{name}` must be [n, dim]. Received: {name}.shape={vectors.shape}.")
    return vectors


def finite_rows(
    vectors: np.ndarray, normalize: bool, name: str = "query_vectors` and `corpus_matrix"
) -> np.ndarray:
    """Returns a block of vectors as float32, scaled to length 1 if `normalize`.

    Raises:
        UserError: If a value is not finite. The message has the `name`.
    """
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(f"`{name}` must be finite. Received: NaN or infinity.")
    return keras.utils.normalize(vectors) if normalize else vectors
