"""Words and vectors together: BM25 among texts, and one ranking out of several."""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.base.vectors import as_whole_number
from bert_tf.errors import UserError, require, require_one_of, user_error

FUSIONS = ("rrf", "weighted")
_NO_ROW = -1  # as in faiss


class BM25Index:
    """Texts that are searched by their words.

    The scores are those of bm25s. A word is found as it is written, in small or capital letters.

    Args:
        texts: The corpus, at least one text.
        stopwords: Words that do not count: a language that bm25s has a list of, such as "en"; a
            list; or None.
        k1: How soon repetitions of a word in a text count no more, at least 0.
        b: How much long texts count less, from 0 to 1.
        words_of: A function that returns the words of a text, such as `jieba.lcut_for_search` for
            Chinese; then `stopwords` are not removed. None: bm25s's words of at least two letters.

    Raises:
        UserError: If bm25s is not installed, there are no texts, or a number has another range.

    Example:
        >>> index = bert_tf.search.BM25Index(["A dog barks.", "Rates rose.", "The cat sleeps."])
        >>> scores, rows = index.search(["the dog", "snow"], k=2)
        >>> rows.tolist()
        [[0, -1], [-1, -1]]

    Reference: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework: BM25 and
        Beyond"; https://github.com/xhluca/bm25s.
    """

    def __init__(
        self,
        texts: Sequence[str],
        stopwords: str | Sequence[str] | None = "en",
        k1: float = 1.5,
        b: float = 0.75,
        words_of: Callable[[str], Sequence[str]] | None = None,
    ):
        require(k1 >= 0, "must be at least 0", UserError, k1=k1)
        require(0 <= b <= 1, "must be in [0, 1]", UserError, b=b)
        texts = [texts] if isinstance(texts, str) else list(texts)
        if not texts:
            raise UserError("`texts` must have at least one text. Received: none.")
        self._bm25s = require_package("bm25s", "BM25")
        logging.getLogger("bm25s").setLevel(logging.WARNING)
        self._stopwords, self._words_of, self._num_rows = stopwords, words_of, len(texts)
        self._index = self._bm25s.BM25(k1=k1, b=b)
        words = self._words(texts)
        self._has_words = any(words)
        if self._has_words:
            self._index.index(words, show_progress=False)

    def __len__(self) -> int:
        return self._num_rows

    def _words(self, texts):
        if self._words_of is not None:
            return [list(self._words_of(text)) for text in texts]
        return self._bm25s.tokenize(
            texts, stopwords=self._stopwords, return_ids=False, show_progress=False
        )

    def search(self, queries: str | Sequence[str], k: int) -> tuple[np.ndarray, np.ndarray]:
        """Finds the `k` best texts for each query, among those that have a word of it.

        Args:
            queries: Q texts, or one.
            k: The number of rows to find.

        Returns:
            Scores float32 and row numbers int64, both `[Q, min(k, n)]`, the best row first; for one
            query, without Q. Where there are fewer rows, the number is -1 and the score 0.
        """
        if isinstance(queries, str):
            scores, rows = self.search([queries], k)
            return scores[0], rows[0]
        k = min(as_whole_number(k, "k"), len(self))
        queries = list(queries)
        scores = np.zeros([len(queries), k], np.float32)
        rows = np.full(scores.shape, _NO_ROW, np.int64)
        if self._has_words and queries:
            found, values = self._index.retrieve(self._words(queries), k=k, show_progress=False)
            is_found = values > 0
            scores[is_found], rows[is_found] = values[is_found], found[is_found]
        return scores, rows


def fuse_rankings(
    rankings: Sequence[tuple[np.ndarray, np.ndarray]],
    k: int,
    method: str = "rrf",
    weights: Sequence[float] | None = None,
    rrf_k: float = 60.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Makes one ranking of rows out of several, such as those of vectors and of words.

    The score of a row is a sum over the rankings that found it. With "rrf" (reciprocal rank
    fusion), each adds `weight / (rrf_k + rank)`, ranks from 1: scores need not be comparable. With
    "weighted", each adds `weight * (score - lowest) / (highest - lowest)` of its scores for the
    query, or `weight` if they are all equal.

    Args:
        rankings: Pairs of scores and row numbers, both `[Q, n]` with any n, the best row first: as
            `top_k`, `sparse_top_k`, `max_sim_top_k`, `VectorIndex.search` and `BM25Index.search`
            return them. A negative row number, as of faiss, is none. Let each find more rows than
            `k`.
        k: The number of rows of a query in the result.
        method: "rrf" or "weighted".
        weights: A number per ranking, at least 0. None means 1 for each.
        rrf_k: At least 0. The larger it is, the less the first ranks count more than the others.

    Returns:
        Scores float32 and row numbers int64, both `[Q, k]`, the best row first, then the smaller
        number. Where there are fewer rows, the number is -1 and the score 0.

    Raises:
        UserError: If there are no rankings, the numbers of queries differ, a score is NaN or
            infinite, a row is twice in a ranking, or a number has another range.

    Example:
        >>> words = np.array([[9.0, 2.0]]), np.array([[7, 4]])
        >>> vectors = np.array([[0.9, 0.8, 0.1]]), np.array([[4, 2, 7]])
        >>> scores, rows = bert_tf.search.fuse_rankings([words, vectors], k=3)
        >>> rows.tolist()
        [[4, 7, 2]]

    Reference: Cormack et al. 2009, "Reciprocal Rank Fusion outperforms Condorcet and individual
        Rank Learning Methods"; the weighted sum with min-max norm of
        https://github.com/AmenRa/ranx.
    """
    k = as_whole_number(k, "k")
    require_one_of("method", method, FUSIONS)
    require(rrf_k >= 0, "must be at least 0", UserError, rrf_k=rrf_k)
    rankings = [_checked(number, *ranking) for number, ranking in enumerate(rankings)]
    if len({len(rows) for _, rows in rankings}) != 1:
        expected = "be at least one pair of scores and rows, of equally many queries"
        raise user_error("`rankings`", expected, [rows.shape for _, rows in rankings])
    weights = [1.0] * len(rankings) if weights is None else list(weights)
    if len(weights) != len(rankings) or not all(0 <= weight < np.inf for weight in weights):
        expected = f"have {len(rankings)} numbers of at least 0, one per ranking"
        raise user_error("`weights`", expected, weights)
    num_queries = len(rankings[0][1])
    scores = np.zeros([num_queries, k], np.float32)
    best = np.full(scores.shape, _NO_ROW, np.int64)
    for query in range(num_queries):
        rows, added = [], []
        for weight, (values, numbers) in zip(weights, rankings):
            is_row = numbers[query] >= 0
            rows.append(numbers[query][is_row])
            values = values[query][is_row]
            if method == "rrf":
                added.append(weight / (rrf_k + np.arange(1, len(values) + 1)))
            else:
                added.append(weight * _from_0_to_1(values))
        distinct, places = np.unique(np.concatenate(rows), return_inverse=True)
        sums = np.bincount(places, np.concatenate(added), len(distinct))
        order = np.argsort(-sums, kind="stable")[:k]
        scores[query, : len(order)], best[query, : len(order)] = sums[order], distinct[order]
    return scores, best


def _checked(number, scores, rows):
    """Returns the scores float64 and rows int64 of a ranking, `[Q, n]`."""
    scores, rows = np.asarray(scores, np.float64), np.asarray(rows)
    if scores.ndim != 2 or scores.shape != rows.shape or rows.dtype.kind not in "iu":
        expected = "be scores [Q, n] and whole row numbers [Q, n]"
        received = f"{scores.shape} and {rows.dtype.name} {rows.shape}"
        raise user_error(f"Ranking {number} of `rankings`", expected, received)
    if not np.isfinite(scores[rows >= 0]).all():
        raise user_error(f"Ranking {number} of `rankings`", "have finite scores", "NaN or infinity")
    ordered = np.sort(rows, axis=1)
    twice = (np.diff(ordered, axis=1) == 0) & (ordered[:, 1:] >= 0)
    if twice.any():
        query = int(np.flatnonzero(twice.any(axis=1))[0])
        received = f"row {ordered[query, 1:][twice[query]][0]} twice for query {query}"
        raise user_error(f"Ranking {number} of `rankings`", "have each row once", received)
    return scores, rows.astype(np.int64)


def _from_0_to_1(values):
    """Returns scores `[n]`, moved and stretched so that the lowest is 0 and the highest 1."""
    if not len(values):
        return values
    lowest, highest = values.min(), values.max()
    if lowest == highest:
        return np.ones_like(values)
    return (values - lowest) / (highest - lowest)
