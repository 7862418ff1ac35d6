"""`sparse_top_k` finds what the dense products say, block by block."""

import numpy as np
import pytest
import scipy.sparse

from bert_tf.errors import UserError
from bert_tf.search import best_rows, sparse_top_k, top_k


@pytest.fixture
def matrices():
    generator = np.random.default_rng(0)
    dense = [
        generator.random([rows, 30]) * (generator.random([rows, 30]) < 0.2) for rows in (7, 50)
    ]
    return [values.astype(np.float32) for values in dense]


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.coo_matrix, np.asarray])
@pytest.mark.parametrize("block", [None, 35])
def test_the_best_rows(matrices, kind, block, monkeypatch):
    if block is not None:  # five rows of the corpus at a time, and three queries
        monkeypatch.setattr(best_rows, "BLOCK_FLOATS", block)
        monkeypatch.setattr(best_rows, "QUERIES", 3)
    queries, corpus = matrices
    scores, rows = sparse_top_k(kind(queries), kind(corpus), k=6)
    expected, _ = top_k(queries, corpus, 6, similarity="dot")
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(queries @ corpus.T, rows, 1), scores, rtol=1e-5)


def test_equal_scores_and_few_rows(matrices):
    queries, corpus = matrices
    scores, rows = sparse_top_k(np.zeros([1, 30]), corpus[:3], k=9)
    assert rows.tolist() == [[0, 1, 2]] and not scores.any()
    scores, rows = sparse_top_k(queries[:0], corpus, k=4)
    assert scores.shape == rows.shape == (0, 4)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda q, c: (q[:, :5], c, 1), r"`query_vectors` must be \[num_queries, V\]"),
        (lambda q, c: (q, c, 0), "`k` must be an integer of at least 1"),
        (lambda q, c: (q, c[:0], 1), "must have rows"),
        (lambda q, c: (q * np.nan, c, 1), "must be finite"),
    ],
)
def test_what_has_no_meaning_is_refused(matrices, change, message):
    with pytest.raises(UserError, match=message):
        sparse_top_k(*change(*matrices))
