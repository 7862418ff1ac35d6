"""Scores of rankings: by hand, by the definitions written as loops, and by pytrec_eval."""

import math

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training.evaluation.ranking import ranked_documents, score_rankings

CUTOFFS = [1, 3, 10, 100]
TREC_NAMES = {
    "ndcg": "ndcg_cut",
    "map": "map_cut",
    "recall": "recall",
    "precision": "P",
    "hit_rate": "success",
}
OF_RANKINGS = {"map": "map", "mrr": "recip_rank", "r_precision": "Rprec", "bpref": "bpref"}


def values_of(scores, query):
    row = scores.query_ids.index(query)
    return {name: values[row] for name, values in scores.values.items()}


def test_by_hand():
    qrels = {"q": {"a": 3, "b": 1, "c": 2, "d": 0, "e": -1}}
    scores = score_rankings({"q": ["d", "b", "x", "a", "e"]}, qrels, [1, 2, 4, 10])
    values = values_of(scores, "q")
    best = 3 + 2 / math.log2(3) + 1 / math.log2(4)
    expected = {
        "ndcg@1": 0.0,
        "ndcg@2": (1 / math.log2(3)) / (3 + 2 / math.log2(3)),
        "ndcg@4": (1 / math.log2(3) + 3 / math.log2(5)) / best,
        "map@1": 0.0,
        "map@2": (1 / 2) / 3,
        "map@4": (1 / 2 + 2 / 4) / 3,
        "mrr@1": 0.0,
        "mrr@10": 0.5,
        "recall@2": 1 / 3,
        "recall@10": 2 / 3,
        "precision@4": 2 / 4,
        "precision@10": 2 / 10,  # of k, although there are only five documents
        "hit_rate@1": 0.0,
        "hit_rate@2": 1.0,
    }
    assert {name: values[name] for name in expected} == pytest.approx(expected)


def test_equal_scores_are_sorted_by_id():
    scores = {"a": 1.0, "d10": 0.5, "d9": 0.5, "é": 0.5, "z": 0.25}
    assert ranked_documents(scores) == ["a", "é", "d9", "d10", "z"]
    as_lists = score_rankings({"q": ranked_documents(scores)}, {"q": {"d9": 1}}, [10])
    assert as_lists.values == score_rankings({"q": scores}, {"q": {"d9": 1}}, [10]).values
    assert as_lists.values["mrr@10"].tolist() == [1 / 3]


def test_which_queries_count():
    qrels = {"found": {"a": 1}, "irrelevant": {"a": 0}, "missing": {"a": 1}, "empty": {"a": 1}}
    rankings = {"found": ["a"], "irrelevant": ["a"], "empty": [], "ungraded": ["a"]}
    scores = score_rankings(rankings, qrels, [1])
    assert scores.query_ids == ("found", "irrelevant", "empty")
    assert {name: values.tolist() for name, values in scores.values.items()} == {
        **{f"{name}@1": [1.0, 0.0, 0.0] for name in (*TREC_NAMES, "mrr", "f1", "hits")},
        **{name: [1.0, 0.0, 0.0] for name in OF_RANKINGS},
        "rbp": pytest.approx([0.2, 0.0, 0.0]),
    }
    assert scores.means()["ndcg@1"] == pytest.approx(1 / 3)
    complete = score_rankings(rankings, qrels, [1], count_missing=True)
    assert complete.query_ids == tuple(qrels)
    assert complete.means()["ndcg@1"] == pytest.approx(1 / 4)


def random_data():
    """40 queries with scores of few values, so that many are equal."""
    random = np.random.default_rng(0)
    documents = [f"d{number}" for number in range(150)]
    run, qrels = {}, {}
    for query in map(str, range(40)):
        found = random.choice(documents, random.integers(1, 130), replace=False)
        run[query] = {str(id_): float(random.integers(0, 9)) / 8 for id_ in found}
        judged = random.choice(documents, random.integers(1, 90), replace=False)
        qrels[query] = {str(id_): int(random.integers(-1, 4)) for id_ in judged}
    qrels["0"] = dict.fromkeys(qrels["0"], 0)
    return run, qrels


def by_definition(scores, grades, k):
    """One query, rank by rank."""
    ranking = sorted(sorted(scores, reverse=True), key=lambda id_: -scores[id_])[:k]
    num_relevant = sum(grade >= 1 for grade in grades.values())
    dcg = precisions = hits = first = 0
    for rank, id_ in enumerate(ranking, start=1):
        grade = grades.get(id_, 0)
        if grade < 1:
            continue
        hits += 1
        first = first or rank
        dcg += grade / math.log2(rank + 1)
        precisions += hits / rank
    best_grades = sorted((grade for grade in grades.values() if grade >= 1), reverse=True)[:k]
    best = sum(grade / math.log2(rank + 1) for rank, grade in enumerate(best_grades, start=1))
    return {
        f"ndcg@{k}": dcg / best if best else 0.0,
        f"map@{k}": precisions / num_relevant if num_relevant else 0.0,
        f"mrr@{k}": 1 / first if first else 0.0,
        f"recall@{k}": hits / num_relevant if num_relevant else 0.0,
        f"precision@{k}": hits / k,
        f"f1@{k}": 2 * hits / (k + num_relevant),
        f"hits@{k}": hits,
        f"hit_rate@{k}": float(hits > 0),
    }


def test_as_the_definitions():
    run, qrels = random_data()
    scores = score_rankings(run, qrels, CUTOFFS)
    for query in qrels:
        expected = {}
        for k in CUTOFFS:
            expected |= by_definition(run[query], qrels[query], k)
        whole = by_definition(run[query], qrels[query], 1000)
        expected |= {"map": whole["map@1000"], "mrr": whole["mrr@1000"]}
        values = values_of(scores, query)
        assert {name: values[name] for name in expected} == pytest.approx(expected, abs=1e-12)


# Means over `random_data()` and the values of the query "1". pytrec_eval-terrier 0.5.11:
#     RelevanceEvaluator(qrels, {"map", "recip_rank", "Rprec", "bpref"}).evaluate(run)
# ir_measures 0.4.3 with cwl-eval: iter_calc([RBP(rel=1, p=0.8), RBP(rel=1, p=0.5)], qrels, run),
# where `run` has 1000 - rank as scores, because cwl-eval orders equal scores in another way.
PEERS = {
    "map": (0.10484896360491795, 0.06145833333333334),
    "mrr": (0.30664903741470234, 0.2),
    "r_precision": (0.15251654606688458, 0.125),
    "bpref": (0.31910024774435847, 0.375),
    "rbp": (0.14334060960437217, 0.1002804608047174),
}
RBP_5 = 0.1418681355261148


def test_numbers_of_peers():
    run, qrels = random_data()
    scores = score_rankings(run, qrels, [10])
    means, values = scores.means(), values_of(scores, "1")
    for name, (mean, value) in PEERS.items():
        assert (means[name], values[name]) == pytest.approx((mean, value), abs=1e-7), name
    other = score_rankings(run, qrels, [10], persistence=0.5).means()["rbp"]
    assert other == pytest.approx(RBP_5)


def test_as_pytrec_eval():
    pytrec_eval = pytest.importorskip("pytrec_eval", reason="needs pytrec-eval")
    run, qrels = random_data()
    scores = score_rankings(run, qrels, [*CUTOFFS, 1000])
    cuts = ",".join(map(str, CUTOFFS))
    measures = {*OF_RANKINGS.values(), *(f"{name}.{cuts}" for name in TREC_NAMES.values())}
    found = pytrec_eval.RelevanceEvaluator(qrels, measures).evaluate(run)
    for query, expected in found.items():
        values = values_of(scores, query)
        assert values["mrr@1000"] == values["mrr"]
        for name, trec_name in OF_RANKINGS.items():
            assert values[name] == pytest.approx(expected[trec_name]), name
        for name, trec_name in TREC_NAMES.items():
            for k in CUTOFFS:
                assert values[f"{name}@{k}"] == pytest.approx(expected[f"{trec_name}_{k}"])


def test_intervals():
    run, qrels = random_data()
    scores = score_rankings(run, qrels, [10])
    intervals, means = scores.intervals(samples=200), scores.means()
    assert intervals.keys() == means.keys()
    assert all(low <= means[name] <= high for name, (low, high) in intervals.items())
    assert intervals == scores.intervals(samples=200)
    low, high = intervals["ndcg@10"]
    assert 0 < high - low < 0.5


@pytest.mark.parametrize(
    "rankings,options,message",
    [
        ({"q": ["a"]}, {"cutoffs": [0, 1]}, "`cutoffs` must be"),
        ({"q": ["a"]}, {"cutoffs": []}, "`cutoffs` must be"),
        ({"q": ["a"]}, {"persistence": 1.0}, "`persistence` must be in \\(0, 1\\).*=1.0"),
        ({"other": ["a"]}, {}, "queries in common.*1 queries \\['other'\\]"),
        ({"q": ["a", "b", "a"]}, {}, "'a' twice for the query 'q'"),
        ({"q": {"a": float("nan")}}, {}, "a: NaN"),
    ],
)
def test_bad_arguments(rankings, options, message):
    with pytest.raises(UserError, match=message):
        score_rankings(rankings, {"q": {"a": 1}}, **options)
