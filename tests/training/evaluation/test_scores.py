"""The reported scores against scikit-learn's and SciPy's, bootstrap intervals, confusion."""

import logging

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics as sk

from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import DataError
from bert_tf.training import all_scores
from bert_tf.training.callbacks import best_threshold
from bert_tf.training.evaluation import bootstrap_intervals
from bert_tf.training.evaluation.probabilities import sigmoid, softmax
from bert_tf.training.evaluation.reports import ClassReport, confusion_matrix, confusion_text
from bert_tf.training.evaluation.scores import drawn_intervals


@pytest.fixture
def generator():
    return np.random.default_rng(0)


def test_two_classes(generator):
    gold = generator.integers(0, 2, 300)
    p = softmax(np.stack([np.zeros(300), gold + generator.normal(size=300)], 1))
    results, predicted = all_scores(gold, p), p.argmax(1)
    expected = {
        "accuracy": sk.accuracy_score(gold, predicted),
        "macro_f1": sk.f1_score(gold, predicted, average="macro"),
        "matthews": sk.matthews_corrcoef(gold, predicted),
        "loss": sk.log_loss(gold, p),
        "f1": sk.f1_score(gold, predicted),
        "precision": sk.precision_score(gold, predicted),
        "recall": sk.recall_score(gold, predicted),
        "auc": sk.roc_auc_score(gold, p[:, 1]),
    }
    assert results == pytest.approx(expected)


def test_more_classes_several_labels_and_numbers(generator):
    gold = generator.integers(0, 3, 300)
    results = all_scores(gold, softmax(generator.normal(size=(300, 3))))
    assert sorted(results) == ["accuracy", "loss", "macro_f1", "matthews"]
    gold = generator.integers(0, 2, (300, 4))
    p = sigmoid(gold + generator.normal(size=(300, 4)))
    results = all_scores(gold, p, MULTI_LABEL)
    assert results["micro_f1"] == pytest.approx(sk.f1_score(gold, p >= 0.5, average="micro"))
    assert results["auc"] == pytest.approx(sk.roc_auc_score(gold, p, average="macro"))
    assert results["exact_match"] == pytest.approx(sk.accuracy_score(gold, p >= 0.5))
    assert results["loss"] == pytest.approx(
        np.mean([sk.log_loss(g, q) for g, q in zip(gold.T, p.T)])
    )
    gold = generator.normal(size=50)
    values = gold + generator.normal(size=50)
    results = all_scores(gold, values[:, np.newaxis], REGRESSION)
    assert results["pearson"] == pytest.approx(np.corrcoef(gold, values)[0, 1])
    assert results["spearman"] == pytest.approx(scipy.stats.spearmanr(gold, values)[0])
    assert results["loss"] == pytest.approx(np.mean((gold - values) ** 2))


def test_undefined_scores_are_skipped_and_logged(caplog):
    with caplog.at_level(logging.WARNING, "bert_tf"):
        results = all_scores(np.ones(5, int), np.full((5, 2), 0.5))
        numbers = all_scores(np.ones(5), np.arange(5.0), REGRESSION)
    assert "auc" not in results and "accuracy" in results and results["matthews"] == 0.0
    assert "auc is skipped: `gold` must have examples of both classes" in caplog.text
    assert sorted(numbers) == ["loss", "mae"]
    assert "pearson is skipped: `gold` must have different values" in caplog.text
    assert np.isfinite(list({**results, **numbers}.values())).all()


@pytest.mark.parametrize(
    "gold,shape,kind,words",
    [
        ([0, 2], (2, 2), SINGLE_LABEL, r"in \[0, 2\)"),
        ([0], (2, 2), SINGLE_LABEL, "shape"),
        ([[0, 1]], (1, 3), MULTI_LABEL, "shape"),
        ([], (0, 2), SINGLE_LABEL, "shape"),
    ],
)
def test_shapes_that_do_not_fit(gold, shape, kind, words):
    with pytest.raises(DataError, match=words):
        all_scores(np.array(gold, int), np.zeros(shape), kind)


def test_names_are_no_class_ids():
    with pytest.raises(DataError, match="'good'.*Pass `model.targets"):
        all_scores(np.array(["good", "bad"]), np.full((2, 2), 0.5))


def test_bootstrap_interval_is_that_of_the_binomial(generator):
    gold = np.zeros(400, int)
    right = generator.random(400) < 0.8
    p = np.where(right[:, None], [0.9, 0.1], [0.1, 0.9])
    low, high = bootstrap_intervals(gold, p, samples=200)["accuracy"]
    share = right.mean()
    spread = 1.96 * np.sqrt(share * (1 - share) / 400)
    assert abs(low - (share - spread)) < 0.012 and abs(high - (share + spread)) < 0.012
    few = {"samples": 20, "seed": 4}
    intervals = bootstrap_intervals(gold, p, **few)
    assert intervals == bootstrap_intervals(gold, p, **few)
    assert "auc" not in intervals  # never defined: one class


@pytest.mark.parametrize("confidence", [0.5, 0.9])
def test_the_share_of_draws_inside_an_interval(confidence):
    draws = list(range(1001))
    (interval,) = drawn_intervals(
        lambda rows: {"score": float(draws.pop())}, 3, len(draws), confidence
    ).values()
    assert interval == pytest.approx((500 * (1 - confidence), 500 * (1 + confidence)))


def test_confusion():
    matrix = confusion_matrix([0, 0, 1, 2], [0, 1, 1, 0], 3)
    assert matrix.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]
    assert confusion_text(matrix, ["ham", "spam", "x"]).splitlines() == [
        r"gold \ predicted  ham  spam  x",
        "ham                 1     1  0",
        "spam                0     1  0",
        "x                   1     0  0",
    ]


def test_a_threshold_decides_on_the_positive_class():
    gold = np.array([0, 0, 1, 1, 1])
    positive = np.array([0.1, 0.35, 0.3, 0.4, 0.9])
    probabilities = np.stack([1 - positive, positive], axis=1)
    scores = all_scores(gold, probabilities, threshold=0.3)
    assert (scores["recall"], scores["precision"], scores["accuracy"]) == (1.0, 0.75, 0.8)
    assert all_scores(gold, probabilities)["recall"] == pytest.approx(1 / 3)
    assert best_threshold(gold, positive) == (0.3, pytest.approx(6 / 7))
    intervals = bootstrap_intervals(gold, probabilities, samples=5, threshold=0.0)
    assert intervals["recall"] == (1.0, 1.0)
    several = np.eye(2)[gold]
    assert all_scores(several, probabilities, MULTI_LABEL, 0.95)["micro_f1"] == 0.0
    assert (
        best_threshold(several, probabilities)[1]
        > all_scores(several, probabilities, MULTI_LABEL, 0.9)["micro_f1"]
    )


def test_reports_have_the_names_of_the_classes():
    gold, probabilities = np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    matrix, table, positive = ClassReport(
        gold, probabilities, SINGLE_LABEL, ["ham", "spam"]
    ).lines()
    assert matrix.splitlines()[2].split() == ["spam", "1", "1"]
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
    assert rows["ham"] == ["0.5000", "1.0000", "0.6667", "1"]
    assert rows["spam"] == ["1.0000", "0.5000", "0.6667", "2"]
    assert positive.endswith("of the class 'spam'")
    several = ClassReport(np.eye(2)[gold], probabilities, MULTI_LABEL, ["ham", "spam"])
    (table,) = several.lines()
    assert table.split()[4] == "ham"
