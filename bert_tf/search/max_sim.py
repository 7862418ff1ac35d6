"""MaxSim: how well documents fit queries by the vectors of their tokens, in bounded memory.

    score(q, d) = sum over the tokens i of q of max over the tokens j of d of q[i] . d[j]

Glossary: `Q` queries, `n` documents, `Sq` and `Sd` tokens of several queries and documents, `Tq`
and `Td` tokens of the longest, `D` size of a vector.

Reference: Khattab and Zaharia 2020 (ColBERT, arXiv 2004.12832), section 3.3.
"""

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.search import best_rows
from bert_tf.search.best_rows import finite_rows, whole_number
from bert_tf.search.token_vectors import TokenVectors


def max_sim_top_k(
    queries: TokenVectors, documents: TokenVectors, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the `k` best documents for each query.

    Every score is computed, in about 200 MB in addition to the inputs, whatever their size.

    Args:
        queries: What `BertLateInteractionEncoder.encode_queries` returns.
        documents: What `encode_documents` returns; the vectors can be a `np.memmap`.
        k: The number of documents to find.

    Returns:
        Scores float32 and numbers of documents int64, both `[Q, min(k, n)]`, the best document
        first, then the smaller number.

    Raises:
        UserError: If an argument has another class or range, the vectors have different sizes or
            are not finite.

    Example:
        >>> vectors = bert_tf.search.TokenVectors
        >>> queries = vectors(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 2])
        >>> documents = vectors(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 3])
        >>> scores, rows = max_sim_top_k(queries, documents, k=2)
        >>> rows
        array([[1, 0]])
        >>> scores.round(2)
        array([[1.6, 1. ]], dtype=float32)
    """
    _check(queries, documents)
    k = whole_number(k, "k")
    if not len(documents):
        raise UserError("`documents` must have at least one. Received: none")
    width = min(k, len(documents))
    found = [(np.zeros([0, width], np.float32), np.zeros([0, width], np.int64))]
    # A part has as many tokens of queries as `exact_search` takes queries.
    size = max(1, best_rows.QUERIES // max(1, queries.longest))
    for start in range(0, len(queries), size):
        part = queries[start : start + size]
        scores_of = _scorer(part, documents)
        rows = part.vectors.shape[0] + documents.vectors.shape[1]  # floats per token of a document
        block = max(1, best_rows.BLOCK // (rows * documents.longest))
        found.append(best_rows.best_rows(len(part), len(documents), k, block, scores_of))
    return tuple(np.concatenate(column) for column in zip(*found))


def max_sim_scores(queries: TokenVectors, documents: TokenVectors) -> np.ndarray:
    """Returns how well each document fits the query at its place, by blocks.

    Args:
        queries: n queries, or one for all documents.
        documents: n documents.

    Returns:
        float32 `[n]`.

    Raises:
        UserError: See `max_sim_top_k`, or if there is neither one query nor one for each document.

    Example:
        >>> vectors = bert_tf.search.TokenVectors
        >>> query = vectors(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 2])
        >>> documents = vectors(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 3])
        >>> max_sim_scores(query, documents).round(2)
        array([1. , 1.6], dtype=float32)
    """
    _check(queries, documents)
    is_one = len(queries) == 1
    if not is_one and len(queries) != len(documents):
        raise UserError(
            "`queries` must be one query, or one for each document. Received: "
            f"{len(queries)} queries, {len(documents)} documents"
        )
    lengths = (queries.longest, documents.longest)
    floats = lengths[0] * lengths[1] + sum(lengths) * documents.vectors.shape[1]
    size = max(1, best_rows.BLOCK // max(1, floats))
    scores = [np.zeros([0], np.float32)]
    for start in range(0, len(documents), size):
        part = slice(start, start + size)
        query, query_mask = _padded(queries if is_one else queries[part], "queries")
        document, document_mask = _padded(documents[part], "documents")
        similarities = tf.matmul(query, document, transpose_b=True)  # [n, Tq, Td]
        scores.append(sum_of_best(similarities, query_mask, document_mask).numpy())
    return np.concatenate(scores)


def sum_of_best(
    similarities: tf.Tensor, query_mask: tf.Tensor, document_mask: tf.Tensor
) -> tf.Tensor:
    """Returns the MaxSim scores of padded queries and documents.

    Args:
        similarities: The dot products of their tokens, `[..., Tq, Td]`.
        query_mask: bool `[..., Tq]`, which tokens of the queries count; or with dimensions of 1.
        document_mask: The same for the documents, `[..., Td]`.

    Returns:
        `[...]`.
    """
    similarities = tf.where(document_mask[..., tf.newaxis, :], similarities, -np.inf)
    best = tf.reduce_max(similarities, axis=-1)  # [..., Tq]
    return tf.reduce_sum(tf.where(query_mask, best, 0.0), axis=-1)


def _check(queries, documents):
    if not isinstance(queries, TokenVectors) or not isinstance(documents, TokenVectors):
        raise UserError(
            "`queries` and `documents` must be TokenVectors, as `encode_queries` and "
            "`encode_documents` return them. Received: "
            f"{type(queries).__name__}, {type(documents).__name__}"
        )
    sizes = queries.vectors.shape[1], documents.vectors.shape[1]
    if sizes[0] != sizes[1]:
        raise UserError(
            "Vectors of queries and of documents must have the same size. Received: "
            f"{sizes[0]} and {sizes[1]}"
        )


def _scorer(queries, documents):
    """Returns a function of a slice of the documents: its scores `[Q, n]`."""
    vectors = tf.constant(finite_rows(queries.vectors, False, "queries"))  # [Sq, D]
    of_query = queries.ragged().value_rowids()  # [Sq]

    def scores_of(part):
        block = documents[part]
        of_document = block.ragged().value_rowids()  # [Sd]
        rows = finite_rows(block.vectors, False, "documents")  # [Sd, D]
        similarities = tf.matmul(rows, vectors, transpose_b=True)  # [Sd, Sq]
        best = tf.math.segment_max(similarities, of_document)  # [n, Sq]
        return tf.math.segment_sum(tf.transpose(best), of_query)  # [Sq, n] -> [Q, n]

    return scores_of


def _padded(texts, name):
    """Returns vectors `[n, T, D]`, and which are those of tokens, bool `[n, T]`."""
    finite_rows(texts.vectors, False, name)
    ragged = texts.ragged()
    return ragged.to_tensor(), tf.sequence_mask(ragged.row_lengths())
