"""Exact search among sparse vectors, in bounded memory."""

from typing import Any

import numpy as np

from bert_tf.base.optional_packages import require
from bert_tf.base.vectors import as_matrix, as_whole_number
from bert_tf.errors import UserError
from bert_tf.search import best_rows


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
        raise UserError(
            "`query_vectors` must be [num_queries, V] and `corpus_matrix` [num_rows, V]. "
            f"Received: query_vectors.shape={queries.shape}, corpus_matrix.shape={corpus.shape}."
        )
    num_queries, num_rows = queries.shape[0], corpus.shape[0]
    if not num_rows:
        raise UserError("`corpus_matrix` must have rows. Received: none.")
    if not (np.isfinite(queries.data).all() and np.isfinite(corpus.data).all()):
        raise UserError(
            "`query_vectors` and `corpus_matrix` must be finite. Received: NaN or infinity."
        )
    parts = [
        _best_of_corpus(queries[part], corpus, k) for part in best_rows.query_slices(num_queries)
    ]
    if not parts:
        width = min(k, num_rows)
        return np.zeros([0, width], np.float32), np.zeros([0, width], np.int64)
    return tuple(np.concatenate(column) for column in zip(*parts))


def _matrix(vectors, name):
    sparse = require("scipy.sparse", "search among sparse vectors")
    vectors = vectors if sparse.issparse(vectors) else as_matrix(vectors, name)
    return sparse.csr_array(vectors, dtype=np.float32)


def _best_of_corpus(queries, corpus, k):
    block = max(1, best_rows.BLOCK_FLOATS // queries.shape[0])

    def scores_of(part):  # [Q, V] x [rows, V] -> [Q, rows]
        return (queries @ corpus[part].T).toarray()

    return best_rows.best_rows(queries.shape[0], corpus.shape[0], k, block, scores_of)
