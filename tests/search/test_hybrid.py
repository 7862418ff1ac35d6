"""bert_tf/search/hybrid.py: BM25 next to its formula, and fused rankings next to plain loops."""

import math

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.search import BM25Index, fuse_rankings

TEXTS = ["a dog barks at a dog", "rates rose", "", "the cat and the dog sleep", "cat, cat!"]


@pytest.fixture
def bm25s():
    pytest.importorskip("bm25s", reason="needs bm25s")


def bm25(query, texts, k1, b):
    """Robertson's formula, with the inverse document frequency of Lucene."""
    mean = sum(map(len, texts)) / len(texts)
    scores = np.zeros(len(texts))
    for word in query:
        having = sum(word in text for text in texts)
        weight = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        for row, text in enumerate(texts):
            count = text.count(word)
            if not count:
                continue
            scores[row] += weight * count / (count + k1 * (1 - b + b * len(text) / mean))
    return scores


@pytest.mark.usefixtures("bm25s")
@pytest.mark.parametrize("k1,b", [(1.5, 0.75), (0.5, 0.0), (2.0, 1.0)])
def test_bm25_is_that_of_the_formula(k1, b):
    texts = [text.replace(",", "").replace("!", "").split() for text in TEXTS]
    index = BM25Index(
        TEXTS, words_of=lambda text: text.strip("!").replace(",", "").split(), k1=k1, b=b
    )
    for query in ("dog", "cat sleep", "dog dog a", "snow", ""):
        scores, rows = index.search([query], k=9)
        expected = bm25(query.split(), texts, k1, b)
        found = rows[0][rows[0] >= 0]
        assert set(found) == set(np.flatnonzero(expected))
        np.testing.assert_allclose(scores[0][: len(found)], expected[found], rtol=1e-5)
        assert (np.diff(scores[0]) <= 0).all() and (rows[0][len(found) :] == -1).all()
        assert scores.shape == (1, 5)


@pytest.mark.usefixtures("bm25s")
def test_words_of_bm25():
    index = BM25Index(TEXTS)
    assert len(index) == 5
    assert index.search("The DOG", 2)[1].tolist() == [0, 3]
    assert index.search("the", 2)[1].tolist() == [-1, -1]  # a stop word
    assert index.search([], 2)[1].shape == (0, 2)
    assert BM25Index(["x", ""]).search(["x"], 1)[1].tolist() == [[-1]]  # no words at all
    chinese = BM25Index(["我爱北京", "天气很好"], words_of=list)
    assert chinese.search("北方", 1)[1].tolist() == [0]


def fused_by_loops(rankings, k, method, weights, rrf_k):
    results = []
    for query in range(len(rankings[0][0])):
        sums = {}
        for weight, (scores, rows) in zip(weights, rankings):
            found = [(s, r) for s, r in zip(scores[query], rows[query]) if r >= 0]
            values = [score for score, _ in found]
            for rank, (score, row) in enumerate(found, start=1):
                part = 1 / (rrf_k + rank)
                if method == "weighted":
                    spread = max(values) - min(values)
                    part = (score - min(values)) / spread if spread else 1.0
                sums[row] = sums.get(row, 0.0) + weight * part
        best = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:k]
        results.append(best + [(-1, 0.0)] * (k - len(best)))
    return results


@pytest.mark.parametrize("method", ["rrf", "weighted"])
@pytest.mark.parametrize("weights", [None, [2.0, 0.0, 0.5]])
def test_fused_rankings(method, weights):
    generator = np.random.default_rng(0)
    rankings = []
    for width in (1, 7, 12):
        rows = np.stack([generator.permutation(20)[:width] for _ in range(9)])
        rows[:, width - generator.integers(width) :] = -1  # fewer were found
        rankings.append((-np.sort(-generator.normal(size=rows.shape), axis=1), rows))
    rankings[2][0][0] = 3.0  # equal scores
    for k in (1, 5, 30):
        scores, rows = fuse_rankings(rankings, k, method, weights, rrf_k=3.0)
        assert scores.dtype == np.float32 and rows.dtype == np.int64
        expected = fused_by_loops(rankings, k, method, weights or [1.0] * 3, 3.0)
        assert rows.tolist() == [[row for row, _ in best] for best in expected]
        expected = [[score for _, score in best] for best in expected]
        np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_the_ranks_of_one_ranking_stay():
    rows = np.array([[4, 2, 9]])
    for method in ("rrf", "weighted"):
        found = fuse_rankings([(np.array([[3.0, 2.0, 1.0]]), rows)], 3, method)[1]
        assert found.tolist() == rows.tolist()


ONE = (np.array([[0.5, 0.25]]), np.array([[0, 1]]))


@pytest.mark.parametrize(
    "rankings,options,words",
    [
        ([], {}, "at least one pair"),
        ([ONE, (np.ones([2, 2]), np.array([[0, 1]] * 2))], {}, "of equally many queries"),
        ([(np.ones([1, 3]), np.array([[0, 1]]))], {}, r"Ranking 0 .* scores \[Q, n\]"),
        ([ONE, (np.ones([1, 2]), np.ones([1, 2]))], {}, "Ranking 1 .* whole row numbers"),
        ([(np.array([[np.nan, 1.0]]), np.array([[0, 1]]))], {}, "finite scores"),
        ([ONE, (np.ones([1, 3]), np.array([[3, 1, 3]]))], {}, "row 3 twice for query 0"),
        ([ONE], {"weights": [1.0, 2.0]}, "1 numbers of at least 0"),
        ([ONE], {"weights": [-1.0]}, "1 numbers of at least 0"),
        ([ONE], {"method": "mean"}, "`method`"),
        ([ONE], {"rrf_k": -1}, "`rrf_k` must be at least 0"),
        ([ONE], {"k": 0}, "`k` must be an integer of at least 1"),
    ],
)
def test_what_has_no_meaning_is_refused(rankings, options, words):
    with pytest.raises(UserError, match=words):
        fuse_rankings(rankings, **{"k": 1, **options})


@pytest.mark.usefixtures("bm25s")
@pytest.mark.parametrize(
    "options,words",
    [
        ({"texts": []}, "at least one text"),
        ({"k1": -1.0}, "`k1` must be at least 0"),
        ({"b": 1.5}, r"`b` must be in \[0, 1\]"),
    ],
)
def test_options_of_bm25(options, words):
    with pytest.raises(UserError, match=words):
        BM25Index(**{"texts": TEXTS, **options})
