"""Pairs, groups and hard negatives among vectors, by cosine similarity, in bounded memory."""

import logging
from collections.abc import Callable, Sequence

import numpy as np

from bert_tf.base.vectors import as_finite_floats, as_matrix, as_whole_number
from bert_tf.errors import UserError, require, user_error
from bert_tf.search import best_rows

_logger = logging.getLogger("bert_tf")
_SAME = 1 - 1e-6  # the cosine of a text's vectors from two batches, which rounding makes differ


def paraphrase_mining(
    vectors: np.ndarray, top_k: int = 100, max_pairs: int = 500_000, min_score: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Finds the most similar pairs of rows.

    A pair is a candidate if one of its rows is among the `top_k` most similar rows of the other.

    Args:
        vectors: Floats `[n, D]`; the matrix can be a `np.memmap`.
        top_k: How many other rows are compared with each row.
        max_pairs: The maximum number of pairs to return.
        min_score: The lowest cosine similarity of a pair; None allows any.

    Returns:
        Cosines float32 `[P]`, the highest first, and rows int64 `[P, 2]`, the smaller one first.
        Each pair occurs once.

    Raises:
        UserError: If an argument has another shape or range, or a value is not finite.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> vectors = encoder.encode(["A dog barks.", "Interest rates rose.", "A dog is barking."])
        >>> scores, pairs = paraphrase_mining(vectors, min_score=0.5)
        >>> pairs.tolist()
        [[0, 2]]

    Reference: sentence-transformers 6.2, util/retrieval.py, `paraphrase_mining_embeddings`, whose
        `max_pairs` counts pairs in both directions.
    """
    vectors = as_matrix(vectors, "vectors")
    top_k, max_pairs = as_whole_number(top_k, "top_k"), as_whole_number(max_pairs, "max_pairs")
    count = len(vectors)
    kept = np.zeros(0, np.float32), np.zeros(0, np.int64)  # scores and keys of pairs
    size = max(1, best_rows.BLOCK_FLOATS // (2 * min(top_k, max(count, 1))))
    size = min(size, best_rows.QUERIES)
    for start in range(0, count if count > 1 else 0, size):
        part = slice(start, min(start + size, count))
        scores, others = _most_similar(vectors, part, min(top_k, count - 1))
        rows = np.broadcast_to(np.arange(part.start, part.stop)[:, None], others.shape)
        keys = np.minimum(rows, others) * count + np.maximum(rows, others)
        chosen = np.isfinite(scores) if min_score is None else scores >= min_score
        kept = _best_pairs(
            np.concatenate([kept[0], scores[chosen]]),
            np.concatenate([kept[1], keys[chosen]]),
            max_pairs,
        )
    scores, keys = kept
    return scores, np.stack(np.divmod(keys, max(count, 1)), axis=1)


def community_detection(
    vectors: np.ndarray, threshold: float = 0.75, min_community_size: int = 10
) -> list[list[int]]:
    """Finds groups of rows that are similar to a row in their centre.

    A row and all rows with a cosine similarity of at least `threshold` to it are a community if
    they are at least `min_community_size`. Communities are taken from the largest to the smallest;
    a row of an earlier one is no centre, and is left out of later ones, which must still be large
    enough.

    Args:
        vectors: Floats `[n, D]`; the matrix can be a `np.memmap`.
        threshold: The lowest cosine similarity to the centre.
        min_community_size: The fewest rows of a community; at most n counts.

    Returns:
        Lists of row numbers, the largest list first. A list begins with its centre and goes on with
        the most similar rows.

    Raises:
        UserError: If an argument has another shape or range, or a value is not finite.

    Example:
        >>> vectors = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [1.0, 0.1], [-1.0, 0.0]])
        >>> community_detection(vectors, threshold=0.95, min_community_size=2)
        [[0, 3, 1]]

    Reference: sentence-transformers 6.2, util/retrieval.py, `community_detection`.
    """
    vectors = as_matrix(vectors, "vectors")
    require(-1 <= threshold <= 1, "must be in [-1, 1]", UserError, threshold=threshold)
    least = min(as_whole_number(min_community_size, "min_community_size"), len(vectors))
    everything = np.arange(len(vectors))
    counts = np.zeros(len(vectors), np.int64)
    for rows, cosines in _cosine_rows(vectors, everything):
        counts[rows] = np.count_nonzero(cosines >= threshold, axis=1)
    centres = np.argsort(-counts, kind="stable")
    centres = centres[counts[centres] >= least]
    taken = np.zeros(len(vectors), bool)
    communities = []
    # The similarities are computed a second time, because all communities may not fit in memory.
    for rows, cosines in _cosine_rows(vectors, centres):
        for row, similar in zip(rows, cosines):
            if taken[row]:
                continue
            members = np.flatnonzero((similar >= threshold) & ~taken)
            if len(members) >= least:
                is_other = members != row
                members = members[np.lexsort((-similar[members], is_other))]
                communities.append(members.tolist())
                taken[members] = True
    return sorted(communities, key=len, reverse=True)


def mine_hard_negatives(
    query_vectors: np.ndarray,
    document_vectors: np.ndarray,
    positives: Sequence[int | Sequence[int]],
    num_negatives: int = 3,
    range_min: int = 0,
    range_max: int | None = None,
    margin: float | None = None,
    relative_margin: float | None = None,
    max_score: float | None = None,
    seed: int | None = None,
    min_score: float | None = None,
    rescore: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Finds documents that are similar to a query but are not among its right ones.

    Training with them is harder than with random documents. The most similar documents may be
    right ones that nobody marked: `range_min`, `margin` and `max_score` leave them out. Documents
    with the vector of a positive, such as copies of its text, are treated as positives.

    Args:
        query_vectors: Floats `[Q, D]`.
        document_vectors: Floats `[n, D]`; the matrix can be a `np.memmap`.
        positives: For each query the row of its right document, or several rows.
        num_negatives: The maximum number of documents for a query.
        range_min: How many of the most similar documents, without the positives, are left out.
        range_max: Only the most similar `range_max` documents, without the positives, are used.
            None means `range_min + num_negatives`, or `range_min + 10 * num_negatives` with one of
            the arguments that limit scores.
        margin: The score of a negative must be below that of the worst positive by this much. A
            score is the cosine, or what `rescore` returns.
        relative_margin: It must be at most `1 - relative_margin` times that of the worst positive.
        max_score: The highest score of a negative.
        seed: None takes the most similar documents; with a number, they are drawn randomly.
        min_score: The lowest score of a negative. Documents that are not similar teach little.
        rescore: A function of P row numbers of queries and P of documents that returns P scores,
            such as those of a cross-encoder, which knows better which documents are right. It is
            called once for the candidates of a query and its positives. `range_min` and `range_max`
            still count by the cosine.

    Returns:
        For each query row numbers int64, the document with the highest score first; fewer than
        `num_negatives` if there are no more.

    Raises:
        UserError: If an argument has another shape or range, or a value is not finite.

    Example:
        >>> documents = np.array([[1.0, 0.0], [0.9, 0.2], [0.7, 0.7], [0.0, 1.0]])
        >>> mine_hard_negatives(np.array([[1.0, 0.1]]), documents, [0], num_negatives=2)
        [array([1, 2])]
        >>> mine_hard_negatives(np.array([[1.0, 0.1]]), documents, [0], 2, max_score=0.9)
        [array([2, 3])]
        >>> def score(queries, documents):
        ...     return 0.1 * documents
        >>> mine_hard_negatives(
        ...     np.array([[1.0, 0.1]]), documents, [3], 2, range_max=3, rescore=score
        ... )
        [array([2, 1])]

    Reference: Moreira et al. 2024 (arXiv 2407.15831); sentence-transformers 6.2,
        util/hard_negatives.py.
    """
    queries = as_matrix(query_vectors, "query_vectors")
    documents = as_matrix(document_vectors, "document_vectors")
    if queries.shape[1] != documents.shape[1]:
        expected = "have the same number of dimensions"
        received = f"{queries.shape} and {documents.shape}"
        raise user_error("`query_vectors` and `document_vectors`", expected, received)
    right = _rows_of_queries("positives", positives, len(queries), len(documents))
    num_negatives = as_whole_number(num_negatives, "num_negatives")
    range_min = as_whole_number(range_min, "range_min", least=0)
    if range_max is None:
        limits = margin, relative_margin, max_score, min_score, rescore
        is_filtered = any(limit is not None for limit in limits)
        range_max = range_min + num_negatives * (10 if is_filtered else 1)
    range_max = as_whole_number(range_max, "range_max", least=range_min + 1)
    random = None if seed is None else np.random.default_rng(seed)
    width = range_max + max(map(len, right), default=0)
    found = []
    for part in best_rows.query_slices(len(queries)):
        vectors = as_finite_floats(queries[part], True, "query_vectors")
        others = _other_documents(vectors, documents, right[part], range_max, width)
        for row, (vector, own, (score, candidates)) in enumerate(
            zip(vectors, right[part], others), start=part.start
        ):
            score, candidates = score[range_min:range_max], candidates[range_min:range_max]
            of_right = as_finite_floats(documents[own], True, "document_vectors") @ vector
            if rescore is not None:
                score, of_right = _rescored(rescore, row, candidates, own)
                order = np.argsort(-score, kind="stable")
                score, candidates = score[order], candidates[order]
            worst = of_right.min()
            most = np.inf if max_score is None else max_score
            most = most if margin is None else min(most, worst - margin)
            most = most if relative_margin is None else min(most, worst * (1 - relative_margin))
            least = -np.inf if min_score is None else min_score
            candidates = candidates[(score <= most) & (score >= least)]
            if random is not None and len(candidates) > num_negatives:
                chosen = random.choice(len(candidates), num_negatives, replace=False)
                candidates = candidates[np.sort(chosen)]
            found.append(candidates[:num_negatives])
    return found


def _rescored(rescore, query, candidates, right):
    """Returns the scores of a query's candidates and of its positives, float64."""
    rows = np.concatenate([candidates, right])
    scores = np.asarray(rescore(np.full(len(rows), query), rows), np.float64)
    if scores.shape != rows.shape or not np.isfinite(scores).all():
        received = f"scores.shape={scores.shape} for {len(rows)} pairs"
        raise user_error("What `rescore` returns", "be a finite number for each pair", received)
    return np.split(scores, [len(candidates)])


def mined_examples(
    queries: Sequence[str],
    documents: Sequence[str],
    positives: Sequence[int | Sequence[int]],
    negatives: Sequence[Sequence[int]],
    num_negatives: int | None = None,
) -> tuple[list[str], list[str], list[list[str]]]:
    """Returns the texts of mined hard negatives as `fit` takes them.

    Args:
        queries: Q texts.
        documents: n texts.
        positives: For each query the row of its right document, or several rows, each of which
            makes an example.
        negatives: For each query the rows that `mine_hard_negatives` found.
        num_negatives: The number of negatives of each example. None means the largest number that a
            query has. Queries with fewer negatives are left out, which is logged.

    Returns:
        Queries, positives and, for each of them, a list of `num_negatives` texts.

    Raises:
        UserError: If there are no rows for a query, a row is out of range, or no query has so many
            negatives.

    Example:
        >>> queries, documents = ["capital of France?", "2 + 2?"], ["Paris", "4", "Rome", "5"]
        >>> mined_examples(queries, documents, [0, 1], [[2, 3], [3, 2]], num_negatives=1)
        (['capital of France?', '2 + 2?'], ['Paris', '4'], [['Rome'], ['5']])

    Reference: sentence-transformers 6.2, `mine_hard_negatives` with `output_format="n-tuple"`.
    """
    queries, documents = list(queries), list(documents)
    right = _rows_of_queries("positives", positives, len(queries), len(documents))
    found = _rows_of_queries("negatives", negatives, len(queries), len(documents), least=0)
    most = max(map(len, found), default=0)
    count = most if num_negatives is None else as_whole_number(num_negatives, "num_negatives")
    if not 1 <= count <= most:
        expected = f"be at most {most}, the largest number of negatives that a query has"
        raise user_error("`num_negatives`", expected, f"num_negatives={num_negatives}")
    examples = [
        (queries[query], documents[row], [documents[other] for other in found[query][:count]])
        for query, rows in enumerate(right)
        for row in rows
        if len(found[query]) >= count
    ]
    if left_out := sum(len(rows) < count for rows in found):
        message = "%d of %d queries are left out, because they have fewer than %d negatives."
        _logger.info(message, left_out, len(queries), count)
    return tuple(map(list, zip(*examples)))


def _rows_of_queries(name, rows_of_queries, num_queries, num_documents, least=1):
    """Returns the rows of documents for each query, arrays int64; checks them."""
    found = [np.atleast_1d(np.asarray(rows, np.int64)) for rows in rows_of_queries]
    is_valid = len(found) == num_queries and all(
        len(rows) >= least and np.all((rows >= 0) & (rows < num_documents)) for rows in found
    )
    if not is_valid:
        what = "at least one row" if least else "a list of rows"
        received = f"{len(found)} for {num_queries} queries and {num_documents} documents"
        raise user_error(f"`{name}`", f"have, for each query, {what} of the documents", received)
    return found


def _other_documents(queries, documents, positives, count, width):
    """Returns the scores and rows of the best documents that are no positives or copies of one.

    There are at least `count` for each query if there are so many.
    """
    while True:
        found = []
        for score, rows, own in zip(*_best_documents(queries, documents, width), positives):
            vectors, right = (
                as_finite_floats(documents[each], True, "document_vectors") for each in (rows, own)
            )
            is_other = ~np.isin(rows, own) & ((vectors @ right.T).max(axis=1) < _SAME)
            found.append((score[is_other], rows[is_other]))
        if width >= len(documents) or min(len(rows) for _, rows in found) >= count:
            return found
        width *= 2  # there are many copies


def _best_documents(queries, documents, k):
    def scores_of(part):  # [Q, D] x [rows, D] -> [Q, rows]
        return queries @ as_finite_floats(documents[part], True, "document_vectors").T

    size = queries.shape[1]
    return best_rows.best_of_queries(queries, len(documents), k, size, lambda _: scores_of)


def _most_similar(vectors, part, k):
    """Returns the cosines and numbers of the `k` rows most similar to each row of a part."""
    queries = as_finite_floats(vectors[part], True, "vectors")
    own = np.arange(part.start, part.stop)

    def scores_of(rows):  # [Q, D] x [rows, D] -> [Q, rows]
        scores = queries @ as_finite_floats(vectors[rows], True, "vectors").T
        is_in = (own >= rows.start) & (own < rows.stop)
        scores[is_in, own[is_in] - rows.start] = -np.inf  # a row is not paired with itself
        return scores

    size = queries.shape[1]
    return best_rows.best_of_queries(queries, len(vectors), k, size, lambda _: scores_of)


def _best_pairs(scores, keys, most):
    """Returns the best `most` pairs, sorted, without repetitions."""
    order = np.lexsort((-scores, keys))  # a pair's two scores may differ in the last bit
    scores, keys = scores[order], keys[order]
    is_first = np.diff(keys, prepend=-1) > 0
    scores, keys = scores[is_first], keys[is_first]
    order = np.lexsort((keys, -scores))[:most]
    return scores[order], keys[order]


def _cosine_rows(vectors, rows):
    """Yields parts of `rows` with their cosines to all vectors, `[part, n]`."""
    size = max(1, best_rows.BLOCK_FLOATS // max(1, len(vectors)))
    block = max(1, best_rows.BLOCK_FLOATS // vectors.shape[1])
    for start in range(0, len(rows), size):
        part = rows[start : start + size]
        queries = as_finite_floats(vectors[part], True, "vectors")
        cosines = np.empty([len(part), len(vectors)], np.float32)
        for first in range(0, len(vectors), block):
            others = as_finite_floats(vectors[first : first + block], True, "vectors")
            np.matmul(queries, others.T, out=cosines[:, first : first + block])
        cosines[np.arange(len(part)), part] = 1  # rounding makes it 0.9999999
        yield part, cosines
