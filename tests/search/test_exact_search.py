"""top_k: exact, block by block, and on real sentences with real weights."""

import numpy as np
import pytest

from bert_tf import BertSentenceEncoder
from bert_tf.errors import UserError
from bert_tf.search import best_rows, top_k

TOPICS = [
    [
        "The dog barked at the postman.",
        "A puppy chased its own tail.",
        "My hound sleeps beside the fire.",
        "Two terriers were digging in the garden.",
    ],
    [
        "The central bank raised interest rates.",
        "Inflation fell to two percent last month.",
        "Shares dropped after the profit warning.",
        "The company will pay a dividend.",
    ],
    [
        "Simmer the onions in butter until soft.",
        "Add a pinch of salt to the soup.",
        "Bake the bread for forty minutes.",
        "The recipe needs three eggs and some flour.",
    ],
]
SENTENCES = [sentence for topic in TOPICS for sentence in topic]


def test_lists_are_matrices():
    scores, rows = top_k([[1.0, 0.0]], [[0.0, 2.0], [3.0, 0.0]], 1)
    assert rows.tolist() == [[1]] and scores.tolist() == [[1.0]]


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_exact_in_blocks(similarity, monkeypatch):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 500)
    monkeypatch.setattr(best_rows, "QUERIES", 7)
    random = np.random.default_rng(0)
    queries, corpus = random.standard_normal([20, 8]), random.standard_normal([333, 8])
    corpus[100:150] = corpus[:50]  # ties
    scores, rows = top_k(queries, corpus, 12, similarity)
    if similarity == "cosine":
        queries, corpus = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, corpus))
    # A copy's score may differ in its last bit; of equal ones the first comes first.
    expected = np.round((queries @ corpus.T), 5)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :12]
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), atol=2e-5)
    np.testing.assert_array_equal(rows % 100, order % 100)
    assert all(len(set(row)) == 12 for row in rows.tolist())


def test_of_equal_scores_the_first(monkeypatch):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 8)
    scores, rows = top_k(np.ones(2), np.ones([9, 2]), 4, "dot")
    assert rows.tolist() == [0, 1, 2, 3] and scores.tolist() == [2.0] * 4


@pytest.mark.parametrize("kind", ["few", "rising", "falling", "random", "integers", "infinite"])
@pytest.mark.parametrize("k, block", [(1, 700), (5, 97), (40, 300), (200, 1000), (3, 5000)])
def test_the_order_is_that_of_a_stable_sort(kind, k, block):
    random = np.random.default_rng(k)
    scores = random.standard_normal([9, 2000]).astype(np.float32)
    if kind == "few":  # equal scores everywhere
        scores = random.integers(0, 4, scores.shape).astype(np.float32)
    elif kind in ("rising", "falling"):  # every block is better, or none but the first
        scores = np.sort(scores, axis=1)[:, :: 1 if kind == "rising" else -1]
    elif kind == "integers":
        scores = -random.integers(100, 140, scores.shape).astype(np.int32)
    elif kind == "infinite":
        scores[:, random.random(2000) < 0.9] = -np.inf
        scores[3] = -np.inf
    found, rows = best_rows.best_rows(9, 2000, k, block, lambda part: scores[:, part])
    # Negative, as a sort from the largest to the smallest is not stable when it is turned round.
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(rows, expected)
    np.testing.assert_array_equal(found, np.take_along_axis(scores, expected, 1))
    assert found.dtype == scores.dtype and rows.dtype == np.int64


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("num_queries", [1, 3, 20])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_anywhere(value, num_queries, similarity):
    random = np.random.default_rng(0)
    queries = random.random([num_queries, 8], np.float32)  # positive: the scores of -inf are -inf
    corpus = random.random([300, 8], np.float32)
    for changed, row in ((corpus, 0), (corpus, 299), (queries, num_queries - 1)):
        before = changed[row, 5]
        changed[row, 5] = value
        with pytest.raises(UserError, match="must be finite"):
            top_k(queries, corpus, 2, similarity)
        changed[row, 5] = before
    assert top_k(queries, corpus, 2, similarity)[1].shape == (num_queries, 2)


@pytest.mark.parametrize("num_queries", [1, 20])
def test_cosines_of_vectors_whose_squares_are_too_large(num_queries):
    random = np.random.default_rng(0)
    queries, corpus = (random.normal(size=[n, 8]).astype(np.float32) for n in (num_queries, 300))
    expected = top_k(queries, corpus, 3)
    corpus[::2] *= 2.0**70
    queries[0] *= 2.0**100
    scores, rows = top_k(queries, corpus, 3)
    np.testing.assert_array_equal(rows, expected[1])
    np.testing.assert_allclose(scores, expected[0], rtol=1e-5)


def test_edges_and_refusals():
    scores, rows = top_k(np.zeros([1, 2]), np.eye(2), 5)
    assert scores.shape == rows.shape == (1, 2) and np.isfinite(scores).all()
    assert top_k(np.zeros([0, 2]), np.eye(2), 1)[1].shape == (0, 1)
    for arguments in (
        (np.ones([2, 3]), np.ones([4, 2]), 1),
        (np.ones([2, 3]), np.ones([4, 3]), 0),
        (np.ones([2, 3]), np.ones([0, 3]), 1),
        (np.ones([2, 3]), np.ones([4, 3]), 1, "euclidean"),
        (np.full([2, 3], np.nan), np.ones([4, 3]), 1),
    ):
        with pytest.raises(UserError, match="Received"):
            top_k(*arguments)


def test_real_sentences_are_found_and_clustered(minilm):
    from sklearn.cluster import KMeans

    encoder = BertSentenceEncoder.from_pretrained(minilm)
    vectors = encoder.encode(SENTENCES)
    queries = ["dogs", "money and markets", "how to cook a meal"]
    _, rows = top_k(encoder.encode(queries), vectors, k=4)
    for topic, found in enumerate(rows):
        assert sorted(found) == list(range(4 * topic, 4 * topic + 4))
    clusters = KMeans(3, n_init=10, random_state=0).fit_predict(vectors).reshape(3, 4)
    assert all(len(set(row)) == 1 for row in clusters.tolist())
    assert len(set(clusters[:, 0])) == 3
