"""MaxSim on packed token vectors: exact, block by block, and what is refused."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.search import best_rows, max_sim_top_k
from bert_tf.tasks.late_interaction import TokenVectors, max_sim_scores, token_vectors


def random_texts(seed, count, dim=8):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 12, count)
    vectors = random.standard_normal([lengths.sum(), dim])
    return TokenVectors(vectors, np.cumsum([0, *lengths]))


def reference(queries, documents):
    """Scores float64 `[Q, n]`, text by text."""
    return np.array([[(q @ d.T).max(axis=1).sum() for d in documents] for q in queries])


@pytest.fixture(params=[None, 500], ids=["at once", "in blocks"])
def blocks(request, monkeypatch):
    if request.param:
        monkeypatch.setattr(best_rows, "BLOCK_FLOATS", request.param)
        monkeypatch.setattr(token_vectors, "FLOATS_AT_ONCE", request.param)
        monkeypatch.setattr(best_rows, "QUERIES", 30)


@pytest.mark.usefixtures("blocks")
def test_top_k_is_exact():
    queries, documents = random_texts(0, 9), random_texts(1, 70)
    expected = reference(queries, documents)
    scores, rows = max_sim_top_k(queries, documents, 12)
    order = np.argsort(-expected, axis=1, kind="stable")[:, :12]
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, order, 1), rtol=1e-5)
    assert scores.dtype == np.float32 and rows.dtype == np.int64
    assert max_sim_top_k(queries, documents, 100)[1].shape == (9, 70)
    assert [part.shape for part in max_sim_top_k(queries[:0], documents, 3)] == [(0, 3)] * 2


@pytest.mark.usefixtures("blocks")
def test_scores_of_pairs_and_of_one_query():
    queries, documents = random_texts(0, 40), random_texts(1, 40)
    expected = reference(queries, documents)
    np.testing.assert_allclose(max_sim_scores(queries, documents), np.diag(expected), rtol=1e-5)
    np.testing.assert_allclose(max_sim_scores(queries[:1], documents), expected[0], rtol=1e-5)
    assert max_sim_scores(queries[:1], documents[:0]).shape == (0,)


def test_parts_of_token_vectors(tmp_path):
    texts = random_texts(0, 5)
    assert len(texts) == 5 and len(texts[1:3]) == 2 and len(texts[4:2]) == 0
    np.testing.assert_array_equal(texts[1:3][1], texts[2])
    np.testing.assert_array_equal(texts[-1], list(texts)[4])
    np.save(tmp_path / "vectors.npy", texts.vectors)
    on_disk = TokenVectors(np.load(tmp_path / "vectors.npy", mmap_mode="r"), texts.row_splits)
    assert isinstance(on_disk[1:3].vectors, np.memmap)
    np.testing.assert_array_equal(max_sim_top_k(texts, on_disk, 1)[1], [[0], [1], [2], [3], [4]])


ONE = TokenVectors(np.eye(2), [0, 1, 2])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: TokenVectors(np.eye(2), [0, 0, 2]), "every text has a vector"),
        (lambda: TokenVectors(np.eye(2), [0, 1]), "end with S"),
        (lambda: TokenVectors(np.ones(2), [0, 2]), r"must be \[S, D\]"),
        (lambda: ONE[::2], "must have the step 1"),
        (lambda: max_sim_top_k(ONE, ONE, 0), "`k` must be an integer of at least 1"),
        (lambda: max_sim_top_k(ONE, ONE[:0], 1), "`documents` must have at least one"),
        (lambda: max_sim_top_k(ONE, np.eye(2), 1), "must be TokenVectors"),
        (lambda: max_sim_scores(ONE, random_texts(0, 2)), "the same size"),
        (lambda: max_sim_scores(ONE, TokenVectors(np.eye(2), [0, 2])), "one for each document"),
        (lambda: max_sim_top_k(ONE, TokenVectors([[np.nan, 0.0]], [0, 1]), 1), "must be finite"),
    ],
)
def test_what_has_no_meaning_is_refused(call, message):
    with pytest.raises(UserError, match=message):
        call()
