"""Vectors that are compared: row by row, with all others, and to find pairs of translations.

Glossary: `n` vectors, `Q` queries, `D` the size of a vector.
"""

import numpy as np

from bert_tf.base.vectors import as_finite_floats

SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_QUERIES_AT_ONCE = 256  # limits the memory of a search
_SMALLEST = 1e-6  # a mean cosine of zero or less would make no margin


def similarities(one: np.ndarray, other: np.ndarray, similarity: str = "cosine") -> np.ndarray:
    """Returns the similarity of each vector with the one in the same row, `[n, D]` -> `[n]`.

    Args:
        one, other: Finite floats `[n, D]`.
        similarity: One of `SIMILARITIES`; distances are negative.

    Raises:
        UserError: If a value is not finite.

    Example:
        >>> from bert_tf.tasks.sentence_embedding.compared_vectors import similarities
        >>> similarities(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]), "manhattan").tolist()
        [-3.0]
    """
    one, other = (as_finite_floats(v, similarity == "cosine", "vectors") for v in (one, other))
    if similarity in ("cosine", "dot"):
        return np.sum(one * other, axis=1)
    difference = one - other
    if similarity == "euclidean":
        return -np.sqrt(np.sum(difference**2, axis=1))
    return -np.sum(np.abs(difference), axis=1)


def nearest(
    queries: np.ndarray, vectors: np.ndarray, k: int, similarity: str = "cosine"
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` most similar vectors of each query, the best first, in blocks of queries.

    Args:
        queries, vectors: Finite floats `[Q, D]` and `[n, D]`.
        k: The number of vectors to find; all if there are fewer.
        similarity: "cosine" or "dot".

    Returns:
        Similarities float32 and row numbers, both `[Q, min(k, n)]`. Of equally similar vectors the
        first is better.

    Raises:
        UserError: If a value is not finite.
    """
    queries, vectors = (
        as_finite_floats(v, similarity == "cosine", "vectors") for v in (queries, vectors)
    )
    values, rows = [], []
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        scores = queries[start : start + _QUERIES_AT_ONCE] @ vectors.T  # [Q, D] -> [Q, n]
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        rows.append(best)
        values.append(np.take_along_axis(scores, best, axis=1))
    return np.concatenate(values), np.concatenate(rows)


def mined_pairs(
    sources: np.ndarray, targets: np.ndarray, num_neighbors: int = 4
) -> tuple[np.ndarray, np.ndarray]:
    """Finds pairs of rows that are most similar; see `BitextMiningScores`.

    Args:
        sources, targets: Finite floats `[n, D]` and `[m, D]`, not empty.
        num_neighbors: The number of neighbors of the margin; 0 for the cosine.

    Returns:
        int64 `[p, 2]`, row numbers of sources and targets, of which none occurs twice, and float32
        `[p]`, the margins, the largest first.

    Raises:
        UserError: If a value is not finite.

    Example:
        >>> from bert_tf.tasks.sentence_embedding.compared_vectors import mined_pairs
        >>> pairs, margins = mined_pairs(np.eye(2), np.eye(2)[::-1], num_neighbors=0)
        >>> pairs.tolist(), margins.tolist()
        ([[0, 1], [1, 0]], [1.0, 1.0])
    """
    count = max(num_neighbors, 1)
    sides = nearest(sources, targets, count), nearest(targets, sources, count)
    means = [cosines.mean(axis=1) for cosines, _ in sides]
    margins = {}
    for side, (cosines, rows) in enumerate(sides):  # [n, k]: first of sources, then of targets
        if num_neighbors:
            scale = (means[side][:, np.newaxis] + means[1 - side][rows]) / 2
            cosines = cosines / np.maximum(scale, _SMALLEST)
        best = np.argmax(cosines, axis=1)
        for row, place in enumerate(best):
            pair = row, int(rows[row, place])
            margins[pair if side == 0 else pair[::-1]] = cosines[row, place]

    used, kept = (set(), set()), []
    for pair in sorted(margins, key=margins.get, reverse=True):
        if pair[0] not in used[0] and pair[1] not in used[1]:
            used[0].add(pair[0])
            used[1].add(pair[1])
            kept.append(pair)
    return np.array(kept, np.int64), np.array([margins[pair] for pair in kept], np.float32)
