"""The best rows of a matrix that is scored block by block."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

# Floats in a block of scores or of vectors: 32 MiB.
BLOCK_FLOATS = 8 * 2**20
QUERIES = 1024
_GROUP = 32  # columns of a block of scores with one maximum
_FEW = 4  # if more than one group in so many has candidates, top_k of the whole block is faster


def query_slices(num_queries: int, most: int = QUERIES) -> list[slice]:
    """Returns the parts of the queries, of at most so many, that are scored together."""
    return [slice(start, start + most) for start in range(0, num_queries, most)]


def best_of_queries(
    queries: Any, num_rows: int, k: int, width: int, scorer: Callable
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows with the highest scores for each query, in bounded memory.

    The queries are a matrix `[Q, ...]`, dense or sparse; `width` is the numbers that one of the
    `num_rows` rows, at least 1, takes in memory, apart from its scores. `scorer` returns, for a
    part of the queries, the function `scores_of` of `best_rows`. Returns what that returns.
    """
    found = []
    for part in query_slices(queries.shape[0]):
        some = queries[part]
        block = max(1, BLOCK_FLOATS // (some.shape[0] + width))
        found.append(best_rows(some.shape[0], num_rows, k, block, scorer(some)))
    if not found:
        shape = [0, min(k, num_rows)]
        return np.zeros(shape, np.float32), np.zeros(shape, np.int64)
    return tuple(np.concatenate(column) for column in zip(*found))


def best_rows(
    num_queries: int, num_rows: int, k: int, block: int, scores_of: Callable
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows with the highest scores for each query.

    Of the `num_rows`, at least 1, `block` rows are scored at once: `scores_of` returns the scores
    `[Q, rows]` of a slice of rows. Returns scores and row numbers int64, both `[Q, min(k,
    num_rows)]`, the best row first; of equal scores, the smaller number first.
    """
    best = None
    for start in range(0, num_rows, block):
        scores = np.asarray(scores_of(slice(start, min(start + block, num_rows))))
        if best is None:
            best = np.zeros([num_queries, 0], scores.dtype), np.zeros([num_queries, 0], np.int64)
        found = _candidates(scores, best[0], k)
        if found is None:
            top = tf.math.top_k(scores, min(k, scores.shape[1]))
            found = top.values.numpy(), top.indices.numpy()
        if found[0].shape[1]:
            # The best rows so far come first, because top_k prefers the first of equal values.
            scores = np.concatenate([best[0], found[0]], axis=1)
            rows = np.concatenate([best[1], found[1] + np.int64(start)], axis=1)
            top = tf.math.top_k(scores, min(k, scores.shape[1]))
            best = top.values.numpy(), np.take_along_axis(rows, top.indices.numpy(), axis=1)
    return best


def _candidates(scores, best, k):
    """Returns the few scores of a block `[Q, n]` that can be among the `k` best, and their columns.

    A maximum per group of columns is much faster than `top_k` of all columns. The `k`-th largest of
    the maxima and of the best scores of the blocks before, `[Q, at most k]`, is a lower bound of
    the new `k`-th best score.

    The results are `[Q, C]`, in the order of the columns and filled up with the lowest score; None
    if they are not few, or the bound is not finite.
    """
    columns = scores.shape[1]
    groups = max(1, columns // _GROUP)
    if best.shape[1] + groups < k:
        return None
    maxima = _maxima_of_groups(scores, groups)
    bound = np.concatenate([best, maxima], axis=1)
    bound = np.partition(bound, -k, axis=1)[:, -k, None]  # [Q, 1]
    if not np.isfinite(bound).all():
        return None
    is_full = best.shape[1] == k
    found = maxima >= bound
    if is_full:  # of equal scores the earlier rows are better
        found &= maxima > best[:, -1:]
    if np.count_nonzero(found) * _FEW > found.size:
        return None
    query, group = np.nonzero(found)  # [G]
    column = group[:, None] + np.arange(0, columns, groups)  # [G, columns of a group]
    value = scores[query[:, None], np.minimum(column, columns - 1)]
    found = (value >= bound[query]) & (column < columns)
    if is_full:
        found &= value > best[query, -1:]
    place = np.sort((query[:, None] * columns + column)[found])  # [C]
    return _filled_up(scores, *np.divmod(place, columns))


def _maxima_of_groups(scores, groups):
    """Returns the maximum of each group of columns, `[Q, n] -> [Q, groups]`.

    Group g has the columns g, g + groups, ..., so that the maximum is one of long vectors.
    """
    queries, columns = scores.shape
    whole = columns // groups
    rest = columns - whole * groups
    maxima = scores[:, : whole * groups].reshape(queries, whole, groups).max(axis=1)  # [Q, groups]
    np.maximum(maxima[:, :rest], scores[:, whole * groups :], out=maxima[:, :rest])
    return maxima


def _filled_up(scores, query, column):
    """Returns scores `[Q, n]` at places that are in order, `[C]`, and their columns.

    Both are `[Q, most places of a query]`, filled up with the lowest score.
    """
    counts = np.bincount(query, minlength=len(scores))
    position = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    lowest = -np.inf if scores.dtype.kind == "f" else np.iinfo(scores.dtype).min
    values = np.full([len(scores), counts.max(initial=0)], lowest, scores.dtype)
    values[query, position] = scores[query, column]
    columns = np.zeros(values.shape, np.int64)
    columns[query, position] = column
    return values, columns
