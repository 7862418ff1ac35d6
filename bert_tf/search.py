"""Exact nearest-neighbor search for semantic search, in bounded memory."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

# Floats in a block of scores or of vectors: 32 MiB.
_BLOCK = 8 * 2**20
_QUERIES = 1024


def top_k(
    query_vectors: np.ndarray, corpus_matrix: np.ndarray, k: int, similarity: str = "cosine"
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` best rows of a matrix for each query.

    Every score is computed, in about 200 MB in addition to the inputs, whatever their size. The
    matrix can be a `np.memmap`.

    Args:
        query_vectors: Floats `[num_queries, dim]`, or one query `[dim]`.
        corpus_matrix: Floats `[num_rows, dim]`, such as the result of `BertSentenceEncoder.encode`.
        k: The number of rows to find.
        similarity: "cosine" or "dot". For vectors of length 1 both are equal, and "dot" is faster.

    Returns:
        Scores float32 and row numbers int64, both `[num_queries, min(k, num_rows)]`, the best row
        first, then the smaller number; for one query, without `num_queries`.

    Raises:
        UserError: If an argument has another shape or range, or a value is not finite.

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
    if not isinstance(corpus_matrix, np.ndarray):
        corpus_matrix = np.asarray(corpus_matrix, np.float32)
    if queries.ndim == 1:
        scores, rows = top_k(queries[np.newaxis], corpus_matrix, k, similarity)
        return scores[0], rows[0]
    shape = corpus_matrix.shape
    if queries.ndim != 2 or len(shape) != 2 or queries.shape[1] != shape[1]:
        raise UserError(
            "`query_vectors` must be [num_queries, dim] and `corpus_matrix` [num_rows, dim]. "
            f"Received: query_vectors.shape={queries.shape}, corpus_matrix.shape={shape}."
        )
    if k < 1 or not len(corpus_matrix):
        raise UserError(
            "`k` must be at least 1 and `corpus_matrix` must have rows. "
            f"Received: {k=}, len(corpus_matrix)={len(corpus_matrix)}."
        )
    if similarity not in ("cosine", "dot"):
        raise UserError(f"`similarity` must be 'cosine' or 'dot'. Received: {similarity=}.")
    normalize = similarity == "cosine"
    if not len(queries):
        width = min(k, len(corpus_matrix))
        return np.zeros([0, width], np.float32), np.zeros([0, width], np.int64)
    chunks = [queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES)]
    parts = [_best_of_corpus(chunk, corpus_matrix, k, normalize) for chunk in chunks]
    return tuple(np.concatenate(column) for column in zip(*parts))


def _best_of_corpus(queries, corpus, k, normalize):
    queries, count = _rows(queries, normalize), len(queries)
    block = max(1, _BLOCK // (count + queries.shape[1]))
    scores, rows = np.zeros([count, 0], np.float32), np.zeros([count, 0], np.int64)
    for start in range(0, len(corpus), block):
        vectors = _rows(corpus[start : start + block], normalize)
        # The best rows so far come first, because top_k prefers the first of equal values.
        candidates = tf.concat([scores, tf.matmul(queries, vectors, transpose_b=True)], axis=1)
        best = tf.math.top_k(candidates, min(k, candidates.shape[1]))
        columns = best.indices.numpy()  # [num_queries, k]
        old = np.pad(rows, [(0, 0), (0, 1)])  # one more column, so that there is at least one
        kept = np.take_along_axis(old, np.minimum(columns, rows.shape[1]), axis=1)
        rows = np.where(columns < rows.shape[1], kept, columns - rows.shape[1] + start)
        scores = best.values.numpy()
    return scores, rows


def _rows(vectors, normalize):
    vectors = np.asarray(vectors, np.float32)
    if not np.isfinite(vectors).all():
        raise UserError(
            "`query_vectors` and `corpus_matrix` must be finite. Received: NaN or infinity."
        )
    return keras.utils.normalize(vectors) if normalize else vectors
