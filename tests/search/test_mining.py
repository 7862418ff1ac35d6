"""Paraphrases, communities and hard negatives, against slow definitions."""

import itertools

import numpy as np
import pytest

from bert_tf import BertSentenceEncoder
from bert_tf.errors import UserError
from bert_tf.search import (
    best_rows,
    community_detection,
    mine_hard_negatives,
    mined_examples,
    paraphrase_mining,
)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(best_rows, "BLOCK_FLOATS", 300)
    monkeypatch.setattr(best_rows, "QUERIES", 7)


def random_vectors(count, size, seed=0):
    return np.random.default_rng(seed).standard_normal([count, size]).astype(np.float32)


def grouped_vectors(count, size, groups, seed=0):
    """Vectors around a few centres, some of them twice."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal([groups, size])
    noise = random.standard_normal([count, size]) * random.uniform(0, 1, [count, 1])
    vectors = centres[random.integers(groups, size=count)] + noise
    vectors[:5] = vectors[5:10]
    return vectors.astype(np.float32)


def cosines_of(first, second):
    first, second = (
        x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12) for x in (first, second)
    )
    return first.astype(np.float64) @ second.T.astype(np.float64)


def slow_pairs(vectors, top_k):
    cosines = cosines_of(vectors, vectors)
    np.fill_diagonal(cosines, -np.inf)
    pairs = set()
    for row, values in enumerate(cosines):
        best = np.argsort(-values, kind="stable")[: min(top_k, len(vectors) - 1)]
        pairs |= {(min(row, other), max(row, other)) for other in best.tolist()}
    return sorted(((cosines[pair], pair) for pair in pairs), reverse=True)


@pytest.mark.parametrize("top_k,max_pairs", [(1, 1000), (4, 1000), (4, 23), (500, 10_000)])
def test_pairs(top_k, max_pairs, small_blocks, tmp_path):
    vectors = random_vectors(61, 9)
    file = np.memmap(tmp_path / "vectors", np.float32, "w+", shape=vectors.shape)
    file[:] = vectors
    scores, pairs = paraphrase_mining(file, top_k, max_pairs)
    expected = slow_pairs(vectors, top_k)[:max_pairs]
    assert pairs.tolist() == [list(pair) for _, pair in expected]
    np.testing.assert_allclose(scores, [score for score, _ in expected], atol=1e-5)
    scores, pairs = paraphrase_mining(vectors, top_k, max_pairs, min_score=0.5)
    assert pairs.tolist() == [list(pair) for score, pair in expected if score >= 0.5]


def test_equal_vectors_and_few_of_them(small_blocks):
    scores, pairs = paraphrase_mining(np.ones([20, 3]), top_k=100)
    assert pairs.tolist() == [list(pair) for pair in itertools.combinations(range(20), 2)]
    np.testing.assert_allclose(scores, 1.0, rtol=1e-6)
    for vectors in (np.ones([0, 3]), np.ones([1, 3])):
        scores, pairs = paraphrase_mining(vectors)
        assert scores.shape == (0,) and pairs.shape == (0, 2)


def slow_communities(vectors, threshold, least):
    """As sentence-transformers does it, in one piece."""
    cosines = cosines_of(vectors, vectors)
    least = min(least, len(vectors))
    groups = []
    for row, values in enumerate(cosines):
        members = np.flatnonzero(values >= threshold)
        if len(members) >= least:
            order = sorted(members.tolist(), key=lambda m: (m != row, -np.float32(values[m]), m))
            groups.append(order)
    groups.sort(key=len, reverse=True)
    taken, result = set(), []
    for centre, *others in groups:
        group = [row for row in [centre, *others] if row not in taken]
        if centre not in taken and len(group) >= least:
            result.append(group)
            taken.update(group)
    return sorted(result, key=len, reverse=True)


@pytest.mark.parametrize("least", [1, 3, 10, 1000])
@pytest.mark.parametrize("threshold", [0.5, 0.9])
def test_communities(threshold, least, small_blocks):
    vectors = grouped_vectors(97, 12, 8)
    found = community_detection(vectors, threshold, least)
    expected = slow_communities(vectors, threshold, least)
    assert list(map(sorted, found)) == list(map(sorted, expected))
    cosines = cosines_of(vectors, vectors)
    for group, other in zip(found, expected):
        assert group[0] == other[0]
        np.testing.assert_allclose(  # equal vectors may change places
            cosines[other[0]][group], cosines[other[0]][other], atol=1e-6
        )
    assert least > 10 or found


def test_communities_of_nothing_and_of_equal_vectors():
    assert community_detection(np.ones([0, 4])) == []
    assert community_detection(np.zeros([5, 4]), 0.5, 2) == []
    assert community_detection(np.ones([5, 4]), 0.5, 2) == [[0, 1, 2, 3, 4]]


def slow_negatives(queries, documents, positives, count, lowest, highest, most_of):
    found = []
    for query, values in enumerate(cosines_of(queries, documents)):
        order = [d for d in np.argsort(-values, kind="stable") if d not in positives[query]]
        most = most_of(values[positives[query]].min())
        found.append([d for d in order[lowest:highest] if values[d] <= most][:count])
    return found


@pytest.mark.parametrize(
    "options,most_of",
    [
        ({}, lambda worst: np.inf),
        ({"range_min": 3}, lambda worst: np.inf),
        ({"range_min": 2, "range_max": 4}, lambda worst: np.inf),
        ({"max_score": 0.3}, lambda worst: 0.3),
        ({"margin": 0.1, "range_max": 90}, lambda worst: worst - 0.1),
        ({"relative_margin": 0.05, "range_max": 60}, lambda worst: worst * 0.95),
        ({"margin": 0.0, "max_score": 0.2, "range_max": 500}, lambda worst: min(worst, 0.2)),
    ],
)
def test_hard_negatives(options, most_of, small_blocks):
    random = np.random.default_rng(0)
    documents, queries = random_vectors(83, 6), random_vectors(15, 6, 1)
    best = np.argsort(-cosines_of(queries, documents), axis=1)
    positives = [random.choice(best[q, :9], random.integers(1, 4), False) for q in range(15)]
    found = mine_hard_negatives(queries, documents, positives, 5, **options)
    lowest = options.get("range_min", 0)
    is_filtered = set(options) & {"max_score", "margin", "relative_margin"}
    highest = options.get("range_max", lowest + 5 * (10 if is_filtered else 1))
    expected = slow_negatives(queries, documents, positives, 5, lowest, highest, most_of)
    assert [rows.tolist() for rows in found] == expected
    drawn = mine_hard_negatives(queries, documents, positives, 5, seed=3, **options)
    again = mine_hard_negatives(queries, documents, positives, 5, seed=3, **options)
    assert list(map(list, drawn)) == list(map(list, again))
    everything = slow_negatives(queries, documents, positives, 99, lowest, highest, most_of)
    for rows, allowed in zip(drawn, everything):
        assert len(rows) == min(5, len(allowed))
        assert rows.tolist() == [d for d in allowed if d in rows]  # the most similar first


def test_hard_negatives_of_no_queries_and_of_few_documents():
    assert mine_hard_negatives(np.ones([0, 2]), np.ones([3, 2]), []) == []
    found = mine_hard_negatives(np.ones([1, 2]), np.eye(2), [1], num_negatives=7)
    assert [rows.tolist() for rows in found] == [[0]]


def test_examples_of_mined_negatives(caplog):
    queries, documents = list("pqr"), np.array(["a", "b", "c", "d", "e"])
    mined = [np.array([3, 4]), np.array([4]), np.array([0, 1])]
    with caplog.at_level("INFO", "bert_tf"):
        found = mined_examples(queries, documents, [[0, 1], 1, 2], mined)
    assert found == (["p", "p", "r"], ["a", "b", "c"], [["d", "e"], ["d", "e"], ["a", "b"]])
    assert "1 of 3 queries are left out" in caplog.text
    one = mined_examples(queries, documents, [0, 1, 2], mined, num_negatives=1)
    assert one == (queries, ["a", "b", "c"], [["d"], ["e"], ["a"]])
    for arguments, message in (
        (([0, 1], mined), "`positives` must have, for each query, at least one row"),
        (([0, 1, []], mined), "`positives` must have"),
        (([0, 1, 2], mined[:2]), "`negatives` must have, for each query, a list of rows"),
        (([0, 1, 2], [[5], [0], [0]]), "`negatives` must have"),
        (([0, 1, 2], mined, 3), "`num_negatives` must be at most 2"),
        (([0, 1, 2], [[], [], []]), "`num_negatives` must be at most 0"),
        (([0, 1, 2], mined, 0), "num_negatives"),
    ):
        with pytest.raises(UserError, match=message):
            mined_examples(queries, documents, *arguments)


def test_a_row_is_in_its_own_community(small_blocks):
    vectors = random_vectors(50, 7)
    assert sorted(community_detection(vectors, 1.0, 1)) == [[row] for row in range(50)]


def test_copies_of_the_positive_are_no_negatives(small_blocks):
    documents, queries = random_vectors(40, 6), random_vectors(9, 6, 1)
    positives = np.argsort(-cosines_of(queries, documents), axis=1)[:, 0]
    expected = mine_hard_negatives(queries, documents, positives, 3)
    copies = np.repeat(documents, 9, axis=0) * np.tile([1, 1 + 1e-7, 3], 120)[:, np.newaxis]
    found = mine_hard_negatives(queries, copies, 9 * positives, 3)
    for received, rows in zip(found, expected):  # all three are copies of the best negative
        assert (received // 9).tolist() == [rows[0]] * 3


def test_refusals():
    vectors, nan = np.ones([3, 2]), np.full([3, 2], np.nan)
    wrong = [
        (paraphrase_mining, vectors[0]),
        (paraphrase_mining, nan),
        (paraphrase_mining, vectors, 0),
        (paraphrase_mining, vectors, 1, 0),
        (community_detection, vectors[0]),
        (community_detection, nan),
        (community_detection, vectors, 1.5),
        (community_detection, vectors, 0.5, 0),
        (mine_hard_negatives, vectors, np.ones([3, 3]), [0, 1, 2]),
        (mine_hard_negatives, vectors, vectors, [0, 1]),
        (mine_hard_negatives, vectors, vectors, [0, 1, 3]),
        (mine_hard_negatives, vectors, vectors, [0, 1, []]),
        (mine_hard_negatives, vectors, vectors, [0, 1, 2], 0),
        (mine_hard_negatives, vectors, vectors, [0, 1, 2], 1, 2, 2),
        (mine_hard_negatives, nan, vectors, [0, 1, 2]),
        (mine_hard_negatives, vectors, nan, [0, 1, 2]),
    ]
    for function, *arguments in wrong:
        with pytest.raises(UserError, match="Received"):
            function(*arguments)


def test_real_sentences(minilm):
    texts = [
        "The central bank raised interest rates.",
        "A dog barks.",
        "Interest rates were raised by the central bank.",
        "A dog is barking.",
        "Bake the bread for forty minutes.",
        "The bread should be baked for 40 minutes.",
    ]
    vectors = BertSentenceEncoder.from_pretrained(minilm).encode(texts)
    _, pairs = paraphrase_mining(vectors, min_score=0.7)
    assert sorted(pairs.tolist()) == [[0, 2], [1, 3], [4, 5]]
    communities = community_detection(vectors, 0.7, min_community_size=2)
    assert sorted(map(sorted, communities)) == [[0, 2], [1, 3], [4, 5]]
    negatives = mine_hard_negatives(vectors[:2], vectors, [[0, 2], [1, 3]], 2, max_score=0.5)
    assert all(not set(rows) & set(right) for rows, right in zip(negatives, ([0, 2], [1, 3])))


@pytest.mark.peers
def test_against_sentence_transformers():
    util = pytest.importorskip("sentence_transformers.util", reason="needs sentence-transformers")
    vectors = grouped_vectors(200, 16, 9)[10:]
    torch = pytest.importorskip("torch", reason="needs sentence-transformers")
    pairs = util.paraphrase_mining_embeddings(torch.tensor(vectors), top_k=5)
    scores, rows = paraphrase_mining(vectors, top_k=5)
    assert {tuple(pair) for pair in rows.tolist()} == {(i, j) for _, i, j in pairs}
    np.testing.assert_allclose(scores, [score for score, _, _ in pairs], atol=1e-5)
    found = community_detection(vectors, 0.7, 4)
    expected = util.community_detection(vectors, 0.7, 4)
    assert list(map(sorted, found)) == list(map(sorted, expected))


def test_lowest_score_and_other_scores():
    generator = np.random.default_rng(3)
    queries, documents = generator.normal(size=[5, 8]), generator.normal(size=[40, 8])
    right = [[0], [1, 2], [3], [4], [5]]
    cosines = unit(queries) @ unit(documents).T
    found = mine_hard_negatives(queries, documents, right, 6, range_max=30, min_score=0.1)
    for query, rows in enumerate(found):
        expected = [row for row in np.argsort(-cosines[query]) if row not in right[query]]
        expected = [row for row in expected[:30] if cosines[query, row] >= 0.1][:6]
        assert rows.tolist() == expected

    scores = generator.normal(size=[5, 40])
    calls = []

    def rescore(of_queries, of_documents):
        calls.append(len(of_queries))
        return scores[of_queries, of_documents]

    options = {"range_min": 2, "range_max": 12, "margin": 0.2, "rescore": rescore}
    found = mine_hard_negatives(queries, documents, right, 4, **options)
    assert calls == [10 + len(own) for own in right]
    for query, rows in enumerate(found):
        near = [row for row in np.argsort(-cosines[query]) if row not in right[query]][2:12]
        limit = scores[query, right[query]].min() - 0.2
        expected = [row for row in near if scores[query, row] <= limit]
        expected = sorted(expected, key=lambda row: -scores[query, row])[:4]
        assert rows.tolist() == expected
    for wrong in (lambda q, d: np.zeros(3), lambda q, d: np.full(len(q), np.nan)):
        with pytest.raises(UserError, match="`rescore` returns must be a finite number"):
            mine_hard_negatives(queries, documents, right, rescore=wrong)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
