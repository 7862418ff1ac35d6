"""Exact search among sparse vectors, in bounded memory."""

from typing import Any

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_matrix, as_whole_number
from bert_tf.errors import UserError, user_error
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
