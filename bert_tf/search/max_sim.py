"""MaxSim: how well documents fit queries by the vectors of their tokens, in bounded memory.

    score(q, d) = sum over the tokens i of q of max over the tokens j of d of q[i] . d[j]

Glossary: `Q` queries, `n` documents, `Sq` and `Sd` tokens of several queries and documents, `D`
size of a vector.

Reference: Khattab and Zaharia 2020 (ColBERT, arXiv 2004.12832), section 3.3.
"""

import numpy as np
import tensorflow as tf

from bert_tf.base.ragged_rows import row_ids
from bert_tf.base.vectors import as_finite_floats, as_whole_number
from bert_tf.errors import UserError
from bert_tf.search import best_rows
from bert_tf.tasks.late_interaction import TokenVectors, require_comparable


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
        >>> vectors = bert_tf.tasks.late_interaction.TokenVectors
        >>> queries = vectors(np.array([[1.0, 0.0], [0.0, 1.0]]), [0, 2])
        >>> documents = vectors(np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), [0, 1, 3])
        >>> scores, rows = max_sim_top_k(queries, documents, k=2)
        >>> rows
        array([[1, 0]])
        >>> scores.round(2)
        array([[1.6, 1. ]], dtype=float32)
    """
    require_comparable(queries, documents)
    k = as_whole_number(k, "k")
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
        block = max(1, best_rows.BLOCK_FLOATS // (rows * documents.longest))
        found.append(best_rows.best_rows(len(part), len(documents), k, block, scores_of))
    return tuple(np.concatenate(column) for column in zip(*found))


def _scorer(queries, documents):
    """Returns a function of a slice of the documents: its scores `[Q, n]`."""
    vectors = tf.constant(as_finite_floats(queries.vectors, False, "queries"))  # [Sq, D]
    of_query = row_ids(queries.ragged().row_splits)  # [Sq]

    def scores_of(part):
        block = documents[part]
        of_document = row_ids(block.ragged().row_splits)  # [Sd]
        rows = as_finite_floats(block.vectors, False, "documents")  # [Sd, D]
        similarities = tf.matmul(rows, vectors, transpose_b=True)  # [Sd, Sq]
        best = tf.math.segment_max(similarities, of_document)  # [n, Sq]
        return tf.math.segment_sum(tf.transpose(best), of_query)  # [Sq, n] -> [Q, n]

    return scores_of
