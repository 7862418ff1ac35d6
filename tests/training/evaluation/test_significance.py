"""Paired tests of two systems, compared with exact permutations and with sacrebleu's p-values."""

import itertools

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.token_classification.metrics import tagging_score_rows
from bert_tf.training.evaluation import compare_systems, score_rankings
from bert_tf.training.evaluation.generated_text import generated_text_rows
from bert_tf.training.evaluation.scores import class_score_rows

GOLD = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0, 1])


def probabilities(decided):
    return np.eye(2)[decided] * 0.8 + 0.1


def exact_p_value(one, other):
    """Two-sided, over all exchanges of the values of pairs."""
    differences = one - other
    signs = np.array(list(itertools.product([1, -1], repeat=len(one))))
    means = np.abs(signs @ differences)
    return np.mean(means >= abs(differences.sum()) - 1e-9)


def mean_of(one, other):
    both = np.concatenate([one, other])
    return lambda rows: {"mean": both[rows].mean()}


@pytest.mark.parametrize("shift", [0.0, 0.3, 0.9])
def test_randomization_is_near_all_permutations(shift):
    random = np.random.default_rng(1)
    one, other = random.normal(shift, 1, 11), random.normal(0, 1, 11)
    found = compare_systems(mean_of(one, other), 11, samples=4000)["mean"]
    assert (found.score, found.other) == pytest.approx((one.mean(), other.mean()))
    assert found.p_value == pytest.approx(exact_p_value(one, other), abs=0.03)


def test_equal_differences_count():
    """One example of ten differs, so every exchange makes the same difference."""
    decided = GOLD.copy()
    decided[0] = 1
    predicted = np.concatenate([probabilities(GOLD), probabilities(decided)])
    rows = class_score_rows(np.tile(GOLD, 2), predicted, names=["accuracy"])
    for test in ("randomization", "bootstrap"):
        found = compare_systems(rows, len(GOLD), test, samples=200)
        assert found["accuracy"][:2] == pytest.approx((1.0, 0.9))
        assert found["accuracy"].p_value > 0.15
    assert compare_systems(rows, len(GOLD), samples=200)["accuracy"].p_value == 1.0


@pytest.mark.parametrize("test", ["randomization", "bootstrap"])
def test_a_system_and_itself(test):
    names = ["accuracy", "f1", "loss"]
    predicted = probabilities(np.tile(1 - GOLD, 2))
    rows = class_score_rows(np.tile(GOLD, 2), predicted, names=names)
    found = compare_systems(rows, len(GOLD), test, samples=20)
    assert {name: comparison.p_value for name, comparison in found.items()} == dict.fromkeys(
        names, 1.0
    )


def test_false_alarms_are_as_rare_as_the_p_value_says():
    random = np.random.default_rng(0)
    p_values = []
    for seed in range(100):
        one, other = random.normal(size=(2, 20))
        p_values.append(compare_systems(mean_of(one, other), 20, samples=99, seed=seed)["mean"][2])
    assert 0.0 < np.mean(np.array(p_values) <= 0.2) < 0.35


def test_tagging():
    gold = [["B-PER", "I-PER", "O"]] * 12
    wrong = [["B-PER", "O", "O"]] * 12
    rows = tagging_score_rows(gold * 2, gold + wrong)
    found = compare_systems(rows, 12, samples=500)
    assert found["f1"].score == 1.0 and found["f1"].other == 0.0
    assert found["f1"].p_value < 0.01 and found["recall_PER"].p_value < 0.01


def test_rankings():
    qrels = {f"q{n}": {"a": 1} for n in range(10)}
    best = score_rankings({query: ["a", "b"] for query in qrels}, qrels, [2])
    second = score_rankings({query: ["b", "a"] for query in qrels}, qrels, [2])
    found = best.compare(second, samples=500)
    assert found["mrr@2"][:2] == (1.0, 0.5) and found["mrr@2"].p_value < 0.02
    assert found["recall@2"].p_value == 1.0
    fewer = score_rankings({"q1": ["a"]}, qrels, [2])
    with pytest.raises(UserError, match="`other` must have the same queries.*9 queries"):
        best.compare(fewer)


def test_a_value_that_is_not_a_number_is_no_difference():
    both = np.array([1.0, 2.0, np.nan, 3.0])
    assert compare_systems(lambda rows: {"mean": both[rows].mean()}, 2, samples=9)["mean"][2] == 1.0


def test_bad_arguments():
    rows = mean_of(np.ones(3), np.zeros(3))
    with pytest.raises(UserError, match="`test` must be one of"):
        compare_systems(rows, 3, test="t")
    with pytest.raises(UserError, match="samples=0"):
        compare_systems(rows, 3, samples=0)
    with pytest.raises(UserError, match="num_examples=0"):
        compare_systems(rows, 0)
    with pytest.raises(UserError, match="`names` must be some of .*'loss'.*: \\['bleu'\\]"):
        class_score_rows(GOLD, probabilities(GOLD), names=["bleu"])


WORDS = ("the", "cat", "sat", "on", "a", "mat", "while", "it", "rained", "all", "day")
# sacrebleu 2.6.0, with the environment variable SACREBLEU_SEED=7 and the texts of the test:
#     PairedTest([("other", other), ("one", one)], {"bleu": BLEU(), "chrf": CHRF(), "ter": TER()},
#                [references], test, 300)()
# of the tests "bs" and "ar": the scores of both and the p-values. The draws of "bs" are the same.
SACREBLEU = {
    "bleu": (61.847978726143516, 57.24628761274123, 0.14285714285714285, 0.37209302325581395),
    "chrf": (74.57335042218658, 69.6349915611101, 0.09966777408637874, 0.23255813953488372),
    "ter": (16.38888888888889, 20.833333333333336, 0.06312292358803986, 0.09966777408637874),
}


def planted_texts(error, seed, count=40):
    random = np.random.default_rng(3)
    texts = [[WORDS[i] for i in random.integers(len(WORDS), size=9)] for _ in range(count)]
    noise = np.random.default_rng(seed)
    return [" ".join("x" if noise.random() < error else w for w in words) for words in texts]


def test_translations_as_sacrebleu():
    pytest.importorskip("rouge_score", reason="needs sacrebleu and rouge-score")
    pytest.importorskip("sacrebleu", reason="needs sacrebleu and rouge-score")
    references, one, other = planted_texts(0, 0), planted_texts(0.15, 1), planted_texts(0.2, 2)
    rows = generated_text_rows(one + other, references * 2)
    drawn = compare_systems(rows, 40, "bootstrap", samples=300, seed=7)
    exchanged = compare_systems(rows, 40, "randomization", samples=300, seed=7)
    for name, (*expected, bootstrap, randomization) in SACREBLEU.items():
        assert drawn[name] == pytest.approx((*expected, bootstrap))
        # Equal differences, which sacrebleu does not count, are frequent for TER.
        assert exchanged[name].p_value == pytest.approx(randomization, abs=0.06)
