"""Scores of rankings, such as those of a search, by the definitions of trec_eval.

    name           trec_eval              of one query
    ndcg@k         ndcg_cut.k             DCG / DCG of the best ranking, where DCG is the sum of
                                          grade / log2(rank + 1) over the first k documents
    map@k          map_cut.k              sum of the precisions at the ranks of the relevant
                                          documents among the first k / all relevant documents
    mrr@k          recip_rank with -M k   1 / rank of the first relevant document, if it is among
                                          the first k, or 0
    recall@k       recall.k               relevant documents among the first k / all of them
    precision@k    P.k                    relevant documents among the first k / k
    f1@k           none; f1@k of ranx     2 · precision@k · recall@k / (precision@k + recall@k)
    hits@k         none; hits@k of ranx   relevant documents among the first k
    hit_rate@k     success.k              1 if a relevant document is among the first k, or 0
    map            map                    map@k of the whole ranking
    mrr            recip_rank             mrr@k of the whole ranking
    r_precision    Rprec                  precision@R, where R is the number of relevant documents
    bpref          bpref                  mean over the R relevant documents of 1 - min(n, R) /
                                          min(N, R), where n of the N documents with grade 0 are
                                          before it; 0 for one that is not ranked
    rbp            none; RBP of           sum of (1 - p) · p ** (rank - 1) over the relevant
                   ir_measures            documents, where p is the persistence

A document is relevant if its grade is at least 1. A document without a grade counts as grade 0, and
a negative grade too, except that bpref leaves out both.

Glossary: `Q` queries, `K` the largest cutoff or the length of the longest ranking.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from bert_tf.errors import UserError, require, user_error
from bert_tf.training.evaluation.scores import drawn_intervals
from bert_tf.training.evaluation.significance import Comparison, compare_systems


@dataclasses.dataclass(frozen=True)
class RankingScores:
    """The scores of rankings by query.

    Attributes:
        query_ids: Q ids, in the order of the values.
        values: float64 `[Q]` by the name of the score, such as "ndcg@10" or "map".
    """

    query_ids: tuple[str, ...]
    values: dict[str, np.ndarray]

    def means(self) -> dict[str, float]:
        """Returns the mean over the queries by the name of the score."""
        return {name: float(values.mean()) for name, values in self.values.items()}

    def intervals(
        self, samples: int = 1000, confidence: float = 0.95, seed: int = 0
    ) -> dict[str, tuple[float, float]]:
        """Returns the interval (low, high) of each mean, by the bootstrap over queries.

        Args:
            samples, confidence, seed: See `drawn_intervals`.

        Raises:
            UserError: If `samples` or `confidence` is out of range.
        """

        def means(rows):
            return {name: values[rows].mean() for name, values in self.values.items()}

        return drawn_intervals(means, len(self.query_ids), samples, confidence, seed)

    def compare(
        self,
        other: "RankingScores",
        test: str = "randomization",
        samples: int = 1000,
        seed: int = 0,
    ) -> dict[str, Comparison]:
        """Tests whether these means differ from those of another search for the same queries.

        Args:
            other: The scores of the other search.
            test, samples, seed: See `compare_systems`.

        Raises:
            UserError: If the queries or the names of the scores are not the same, or see
                `compare_systems`.
        """
        differing = set(self.query_ids) ^ set(other.query_ids)
        if self.query_ids != other.query_ids or self.values.keys() != other.values.keys():
            expected = "have the same queries and scores. `count_missing=True` of `score_rankings` "
            expected += "also counts the queries without a ranking"
            received = f"{_some(sorted(differing))} of only one of them"
            raise user_error("`other`", expected, received)
        both = {name: np.concatenate([v, other.values[name]]) for name, v in self.values.items()}

        def means(rows):
            return {name: values[rows].mean() for name, values in both.items()}

        return compare_systems(means, len(self.query_ids), test, samples, seed)


def score_rankings(
    rankings: Mapping[str, Sequence[str] | Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    cutoffs: Sequence[int] = (1, 10, 100),
    count_missing: bool = False,
    persistence: float = 0.8,
) -> RankingScores:
    """Computes the scores of the table above, those with k at each cutoff.

    The queries that count are those in both `rankings` and `qrels`, as in trec_eval. A query whose
    documents all have a grade below 1 counts: all its scores are 0.

    Args:
        rankings: Maps the id of a query to ids of documents, the best first, or to scores by the id
            of the document, which `ranked_documents` sorts.
        qrels: Maps the id of a query to grades by the id of the document.
        cutoffs: The values of k.
        count_missing: Whether a query of `qrels` that has no ranking counts with scores of 0, as
            with trec_eval's option -c.
        persistence: The p of RBP, in (0, 1): how probably a user goes on to the next document.

    Returns:
        The scores of each query, in the order of `qrels`.

    Raises:
        UserError: If a cutoff is below 1 or `persistence` not in (0, 1), no query counts, a
            document occurs twice in a ranking, or a score is NaN.

    Example:
        >>> qrels = {"q1": {"d1": 2, "d2": 1}, "q2": {"d3": 1}}
        >>> rankings = {"q1": ["d2", "d9", "d1"], "q2": {"d8": 0.5, "d3": 0.7}}
        >>> scores = score_rankings(rankings, qrels, cutoffs=[2])
        >>> scores.values["recall@2"].tolist()
        [0.5, 1.0]
        >>> scores.means()["mrr@2"]
        1.0

    Reference: https://github.com/usnistgov/trec_eval; Järvelin and Kekäläinen 2002, "Cumulated
    gain-based evaluation of IR techniques"; Buckley and Voorhees 2004 (bpref), Moffat and Zobel
    2008 (RBP).
    """
    rule = "must be in (0, 1), the probability of going on"
    require(0.0 < persistence < 1.0, rule, UserError, persistence=persistence)
    cutoffs = sorted(set(cutoffs))
    if not cutoffs or cutoffs[0] < 1:
        raise UserError(f"`cutoffs` must be numbers of at least 1. Received: {cutoffs=}.")
    query_ids = tuple(query for query in qrels if count_missing or query in rankings)
    if not query_ids:
        received = f"rankings of {_some(rankings)} and grades for {_some(qrels)}"
        raise user_error("`rankings` and `qrels`", "have queries in common", received)
    ids = [_ids(query, rankings.get(query, ())) for query in query_ids]
    longest = max(cutoffs[-1], *map(len, ids))
    grades = np.zeros([len(query_ids), longest])  # of the ranked documents
    best = np.zeros_like(grades)  # of the best ranking
    num_relevant, bpref = np.zeros([len(query_ids), 1]), np.zeros(len(query_ids))
    for row, (query, ranking) in enumerate(zip(query_ids, ids)):
        judged = qrels[query]
        grades[row, : len(ranking)] = [max(0, judged.get(id_, 0)) for id_ in ranking]
        positive = sorted((grade for grade in judged.values() if grade > 0), reverse=True)
        best[row, : len(positive)] = positive[:longest]
        num_relevant[row] = len(positive)
        bpref[row] = _bpref(ranking, judged, len(positive))

    ranks = np.arange(1, longest + 1)
    relevant = grades > 0  # [Q, K]
    hits = np.cumsum(relevant, axis=1)
    precisions = hits / ranks
    dcg, best_dcg = (np.cumsum(gains / np.log2(ranks + 1), axis=1) for gains in (grades, best))
    tables = {  # [Q, K]
        "ndcg": _ratio(dcg, best_dcg),
        "map": _ratio(np.cumsum(precisions * relevant, axis=1), num_relevant),
        "mrr": np.maximum.accumulate(relevant / ranks, axis=1),
        "recall": _ratio(hits, num_relevant),
        "precision": precisions,
        "f1": _ratio(2 * hits, ranks + num_relevant),
        "hits": hits.astype(np.float64),
        "hit_rate": (hits > 0).astype(np.float64),
    }
    values = {f"{name}@{k}": table[:, k - 1] for name, table in tables.items() for k in cutoffs}
    values |= {name: tables[name][:, -1] for name in ("map", "mrr")}
    place = np.clip(num_relevant.astype(np.int64), 1, longest) - 1  # [Q, 1]
    values["r_precision"] = _ratio(np.take_along_axis(hits, place, axis=1), num_relevant)[:, 0]
    values["bpref"] = bpref
    values["rbp"] = (1 - persistence) * (relevant * persistence ** (ranks - 1)).sum(axis=1)
    return RankingScores(query_ids, values)


def ranked_documents(scores: Mapping[str, float]) -> list[str]:
    """Sorts documents as trec_eval does: the best score first, of equal ones the larger id.

    Args:
        scores: Scores by the id of the document. Ids are compared by their code points.

    Raises:
        UserError: If a score is NaN.

    Example:
        >>> ranked_documents({"d1": 0.5, "d2": 0.9, "d3": 0.5})
        ['d2', 'd3', 'd1']
    """
    for document, score in scores.items():
        if math.isnan(score):
            raise UserError(f"The scores of documents must be numbers. Received: {document}: NaN.")
    return sorted(scores, key=lambda document: (scores[document], document), reverse=True)


def _ids(query, ranking):
    if isinstance(ranking, Mapping):
        return ranked_documents(ranking)
    if len(set(ranking)) < len(ranking):
        repeated = next(id_ for place, id_ in enumerate(ranking) if id_ in ranking[:place])
        expected = "have each document once for a query"
        raise user_error("`rankings`", expected, f"{repeated!r} twice for the query {query!r}")
    return ranking


def _bpref(ranking, judged, num_relevant):
    """Returns the bpref of one query; documents without a grade or with a negative one are none."""
    found = [judged[id_] for id_ in ranking if judged.get(id_, -1) >= 0]
    is_other = np.array(found, np.int64) == 0
    most = min(num_relevant, sum(grade == 0 for grade in judged.values()))
    before = np.minimum(np.cumsum(is_other), num_relevant)[~is_other]
    return np.sum(1.0 - before / max(most, 1)) / max(num_relevant, 1)


def _ratio(values, totals):
    """Returns `values / totals`, and 0 where the total is 0."""
    return np.divide(values, totals, out=np.zeros(values.shape), where=totals > 0)


def _some(queries):
    return f"{len(queries)} queries {list(queries)[:3]}"
