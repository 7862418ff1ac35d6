"""Semantic search: the nearest of many vectors, exactly, in bounded memory."""

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

# Floats of a block of scores, or of vectors: 32 MiB.
_BLOCK = 8 * 2**20
_QUERIES = 1024


def top_k(
    query_vectors: np.ndarray, corpus_matrix: np.ndarray, k: int, similarity: str = "cosine"
) -> tuple[np.ndarray, np.ndarray]:
    """The k best rows of a matrix for every query, best first.

    Every score is computed (a matmul, block by block), so the result is exact; beside the inputs it
    takes about 200 MB, whatever their size. The matrix may be a `np.memmap`.

    Args:
        query_vectors: Floats `[Q, D]`, or one query `[D]`.
        corpus_matrix: Floats `[n, D]`, as `BertSentenceEncoder.encode` gives them.
        k: How many; if the matrix has fewer rows, all come.
        similarity: "cosine", or "dot": the same for vectors of length 1, and faster.

    Returns:
        Scores float32 and row numbers int64, both `[Q, min(k, n)]`, without Q for one query. Of
        equal scores the smaller row number comes first.

    Raises:
        UserError: For shapes that do not fit, or values that are not finite.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> corpus = ["A dog barks.", "Rates rose.", "The cat sleeps."]
        >>> scores, rows = bert_tf.search.top_k(
        ...     encoder.encode(["a barking dog"]), encoder.encode(corpus), k=2
        ... )
        >>> [corpus[row] for row in rows[0]]
        ['A dog barks.', 'The cat sleeps.']
    """
    queries = np.asarray(query_vectors, np.float32)
    if queries.ndim == 1:
        scores, rows = top_k(queries[np.newaxis], corpus_matrix, k, similarity)
        return scores[0], rows[0]
    if (
        queries.ndim != 2
        or np.ndim(corpus_matrix) != 2
        or (queries.shape[1] != corpus_matrix.shape[1])
    ):
        raise UserError(
            "Queries [Q, D] and a matrix [n, D] were expected. "
            f"Received: {queries.shape} and {np.shape(corpus_matrix)}"
        )
    if k < 1 or not len(corpus_matrix):
        raise UserError(
            "`k` of at least 1 and a matrix with rows were expected. "
            f"Received: k={k}, {len(corpus_matrix)} rows"
        )
    if similarity not in ("cosine", "dot"):
        raise UserError(
            f"`similarity` must be 'cosine' or 'dot'. Received: similarity={similarity!r}"
        )
    normalize = similarity == "cosine"
    if not len(queries):
        width = min(k, len(corpus_matrix))
        return np.zeros([0, width], np.float32), np.zeros([0, width], np.int64)
    parts = [
        _best_of_corpus(
            _rows(queries[start : start + _QUERIES], normalize), corpus_matrix, k, normalize
        )
        for start in range(0, len(queries), _QUERIES)
    ]
    return tuple(np.concatenate(column) for column in zip(*parts))


def _best_of_corpus(queries, corpus, k, normalize):
    count = len(queries)
    block = max(1, _BLOCK // (count + queries.shape[1]))
    scores, rows = np.zeros([count, 0], np.float32), np.zeros([count, 0], np.int64)
    for start in range(0, len(corpus), block):
        vectors = _rows(corpus[start : start + block], normalize)
        # What was best so far stands first: of equal values top_k takes the first.
        candidates = tf.concat([scores, tf.matmul(queries, vectors, transpose_b=True)], axis=1)
        best = tf.math.top_k(candidates, min(k, candidates.shape[1]))
        columns = best.indices.numpy()  # [Q, k]
        old = np.pad(rows, [(0, 0), (0, 1)])  # one column more, so that there is one to take
        kept = np.take_along_axis(old, np.minimum(columns, rows.shape[1]), axis=1)
        rows = np.where(columns < rows.shape[1], kept, columns - rows.shape[1] + start)
        scores = best.values.numpy()
    return scores, rows


def _rows(vectors, normalize):
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise UserError("Finite vectors were expected. Received: NaN or infinity among them.")
    if not normalize:
        return vectors
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)
