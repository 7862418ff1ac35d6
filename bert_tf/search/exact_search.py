"""Exact search among dense and sparse vectors, in bounded memory, and the recall of another one."""

import functools
from typing import Any

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_array, as_finite_floats, as_matrix, as_whole_number
from bert_tf.errors import UserError, require_one_of, user_error
from bert_tf.search import best_rows

_SHORTEST = 1e-12  # of vectors that have a direction
_FEW_QUERIES = 5  # with fewer, one product per query is faster than one of matrices


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
    k = as_whole_number(k, "k")
    queries = np.asarray(as_array(query_vectors, "query_vectors"), np.float32)
    corpus_matrix = as_array(corpus_matrix, "corpus_matrix")
    if queries.ndim == 1:
        scores, rows = top_k(queries[np.newaxis], corpus_matrix, k, similarity)
        return scores[0], rows[0]
    shape = corpus_matrix.shape
    if queries.ndim != 2 or len(shape) != 2 or queries.shape[1] != shape[1]:
        expected = "be [num_queries, dim] and `corpus_matrix` [num_rows, dim]"
        received = f"query_vectors.shape={queries.shape}, corpus_matrix.shape={shape}"
        raise user_error("`query_vectors`", expected, received)
    if not len(corpus_matrix):
        raise UserError("`corpus_matrix` must have rows. Received: len(corpus_matrix)=0.")
    require_one_of("similarity", similarity, ("cosine", "dot"))
    normalize = similarity == "cosine"
    scorer = functools.partial(_scorer, corpus_matrix, normalize)
    return best_rows.best_of_queries(queries, len(corpus_matrix), k, queries.shape[1], scorer)


def search_recall(found_rows: np.ndarray, exact_rows: np.ndarray) -> float:
    """Returns the share of the exact results that another search finds, from 0 to 1.

    Args:
        found_rows: Row numbers `[Q, k]`, such as those of faiss, usearch or an index of bits.
        exact_rows: The row numbers that `top_k` finds on floats, `[Q, k]`.

    Raises:
        UserError: If there are no rows, or not as many queries.

    Example:
        >>> search_recall(np.array([[0, 1], [2, 3]]), np.array([[1, 0], [3, 7]]))
        0.75
    """
    found_rows, exact_rows = np.asarray(found_rows), np.asarray(exact_rows)
    if exact_rows.ndim != 2 or not exact_rows.size or len(found_rows) != len(exact_rows):
        expected = "be [Q, k], with at least one row"
        received = f"{found_rows.shape} and {exact_rows.shape}"
        raise user_error("`found_rows` and `exact_rows`", expected, received)
    pairs = zip(found_rows, exact_rows)
    return float(np.mean([np.isin(exact, found).mean() for found, exact in pairs]))


def _scorer(corpus, normalize, queries):
    queries = as_finite_floats(queries, normalize)  # [Q, D]

    def scores_of(part):  # [Q, D] x [rows, D] -> [Q, rows]
        rows = np.asarray(corpus[part], np.float32)
        scores = _products(queries, rows)
        checked = min(scores, rows, key=np.size)  # what is not finite in a row is so in its scores
        if normalize:
            checked = np.sqrt(np.einsum("nd,nd->n", rows, rows))
            scores /= np.maximum(checked, _SHORTEST)
        if not np.isfinite(checked).all():
            return _products(queries, as_finite_floats(rows, normalize))
        return scores

    return scores_of


def _products(queries, rows):
    if len(queries) < _FEW_QUERIES:  # reads the rows once, in the order of the memory
        scores = np.empty([len(queries), len(rows)], np.float32)
        for query, score in zip(queries, scores):
            np.matmul(rows[:, np.newaxis], query[:, np.newaxis], out=score[:, None, None])
        return scores
    return queries @ rows.T


def sparse_top_k(query_vectors: Any, corpus_matrix: Any, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` rows of a sparse matrix with the largest dot products for each query.

    Only products of weights that are not zero are computed, in about 100 MB in addition to the
    inputs and a transposed copy of a part of the corpus, the inverted index.

    Args:
        query_vectors: A `scipy.sparse` matrix or an array `[num_queries, V]`.
        corpus_matrix: The same `[num_rows, V]`, such as the result of `BertSparseEncoder.encode`.
        k: The number of rows to find.

    Returns:
        Scores float32 and row numbers int64, both `[num_queries, min(k, num_rows)]`, the best row
        first, then the smaller number.

    Raises:
        UserError: If an argument has another shape or range, a value is not finite, or scipy is not
            installed.

    Example:
        >>> encoder = bert_tf.BertSparseEncoder.from_pretrained("bert-base/")
        >>> corpus = encoder.encode(["Ada wrote it.", "It rains.", "No."], max_active_dims=8)
        >>> scores, rows = sparse_top_k(encoder.encode(["who wrote it?"]), corpus, k=2)
        >>> rows.shape
        (1, 2)
    """
    k = as_whole_number(k, "k")
    queries = _matrix(query_vectors, "query_vectors")
    corpus = _matrix(corpus_matrix, "corpus_matrix")
    if queries.ndim != 2 or corpus.ndim != 2 or queries.shape[1] != corpus.shape[1]:
        expected = "be [num_queries, V] and `corpus_matrix` [num_rows, V]"
        received = f"query_vectors.shape={queries.shape}, corpus_matrix.shape={corpus.shape}"
        raise user_error("`query_vectors`", expected, received)
    num_rows = corpus.shape[0]
    if not num_rows:
        raise UserError("`corpus_matrix` must have rows. Received: none.")
    if not (np.isfinite(queries.data).all() and np.isfinite(corpus.data).all()):
        raise user_error("`query_vectors` and `corpus_matrix`", "be finite", "NaN or infinity")
    return best_rows.best_of_queries(
        queries, num_rows, k, 0, lambda some: lambda part: (some @ corpus[part].T).toarray()
    )


def _matrix(vectors, name):
    sparse = require_package("scipy.sparse", "search among sparse vectors")
    vectors = vectors if sparse.issparse(vectors) else as_matrix(vectors, name)
    return sparse.csr_array(vectors, dtype=np.float32)
