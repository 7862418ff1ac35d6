"""Exact match, F1 and the null threshold: cases computed by hand from the official scripts."""

import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.tasks.question_answering.files import GoldAnswer, SquadExample
from bert_tf.tasks.question_answering.metrics import (
    best_null_thresholds,
    exact_match,
    normalize_answer,
    squad_intervals,
    squad_scores,
    word_f1,
)


def example(id, *answers):
    golds = tuple(GoldAnswer(text, 0) for text in answers)
    return SquadExample(id, "?", "", golds, is_impossible=not answers)


@pytest.mark.parametrize(
    "text,normalized",
    [
        ("The Cat", "cat"),
        ("the U.S.A.", "usa"),
        ("an  apple\ta day", "apple day"),
        ("A", ""),
        ("theatre", "theatre"),  # an article only as a word
        ("the-cat", "thecat"),  # punctuation goes first
        ("'the' end!", "end"),
        ("\u00c9cole", "\u00e9cole"),
        ("\u201cquoted\u201d", "\u201cquoted\u201d"),  # only ASCII punctuation
        ("1,000.5 km/h", "10005 kmh"),
        ("caf\u00e9 a\u00a0b", "caf\u00e9 b"),
    ],
)
def test_normalization(text, normalized):
    assert normalize_answer(text) == normalized


@pytest.mark.parametrize(
    "prediction,gold,exact,f1",
    [
        ("the cat", "Cat.", 1, 1),
        ("black cat", "cat", 0, 2 / 3),  # precision 1/2, recall 1
        ("cat cat", "cat", 0, 2 / 3),  # a word counts as often as both have it
        ("cat cat dog", "cat cat", 0, 0.8),  # precision 2/3, recall 1
        ("in the big city of Rome", "Rome city", 0, 4 / 7),  # 2 of 5, 2 of 2
        ("dog", "cat", 0, 0),
        ("", "cat", 0, 0),
    ],
)
def test_exact_match_and_f1(prediction, gold, exact, f1):
    assert exact_match(prediction, gold) == exact
    for version_2 in (False, True):
        assert word_f1(prediction, gold, version_2) == pytest.approx(f1, abs=1e-12)


def test_texts_without_words():
    assert exact_match("the", "") == 1.0
    assert word_f1("the", "", version_2=True) == 1.0 and word_f1("cat", "", version_2=True) == 0.0
    assert word_f1("the", "a") == 0.0  # evaluate-v1.1.py has no such rule


def test_scores_of_version_1():
    examples = [example("1", "cat", "black cat"), example("2", "Rome"), example("3", "x")]
    results = squad_scores(examples, {"1": "the black cat", "2": "in Rome"})
    assert results == {
        "exact_match": pytest.approx(100 / 3),
        "f1": pytest.approx(100 * (1 + 2 / 3 + 0) / 3),
        "total": 3,
    }


def test_scores_of_version_2():
    examples = [example("1", "cat", "the"), example("2"), example("3"), example("4", "a b")]
    predictions = {"1": "black cat", "2": "", "3": "dog", "4": ""}
    assert squad_scores(examples, predictions, version_2=True) == {
        "exact": 25.0,
        "f1": pytest.approx(100 * (2 / 3 + 1) / 4),
        "total": 4,
        "HasAns_exact": 0.0,
        "HasAns_f1": pytest.approx(100 / 3),
        "HasAns_total": 2,
        "NoAns_exact": 50.0,
        "NoAns_f1": 50.0,
        "NoAns_total": 2,
    }
    assert "NoAns_f1" not in squad_scores(examples[:1], predictions, version_2=True)


@pytest.mark.parametrize("version_2", [False, True])
def test_intervals_are_percentiles_of_drawn_questions(version_2):
    generator = np.random.default_rng(0)
    examples = [example(str(n), "big cat") for n in range(50)]
    examples += [example(str(n), *["cat"] * (not version_2)) for n in range(50, 80)]
    predictions = {one.id: ["", "cat", "big cat"][generator.integers(3)] for one in examples[:-1]}
    found = squad_intervals(examples, predictions, version_2, 30, 0.8, seed=5)
    generator = np.random.default_rng(5)
    drawn = []
    for _ in range(30):
        rows = generator.integers(0, 80, 80)
        drawn.append(squad_scores([examples[row] for row in rows], predictions, version_2))
    scores = squad_scores(examples, predictions, version_2)
    assert set(found) == {name for name in scores if not name.endswith("total")}
    for name, ends in found.items():
        expected = np.percentile([results[name] for results in drawn], [10, 90])
        np.testing.assert_allclose(ends, expected)
        assert ends[0] < scores[name] < ends[1]


def test_best_threshold_by_hand():
    examples = [example("1", "cat"), example("2"), example("3", "big dog"), example("4")]
    texts = {"1": "cat", "2": "x", "3": "dog", "4": "y"}
    differences = {"1": -3.0, "2": 2.0, "3": -1.0, "4": 5.0}
    # All none: 2 of 4. Up to -3: 3 exact. Up to -1: F1 of "dog" 2/3 more, no exact match more.
    assert best_null_thresholds(examples, texts, differences) == {
        "best_exact": 75.0,
        "best_exact_thresh": -3.0,
        "best_f1": pytest.approx(100 * (3 + 2 / 3) / 4),
        "best_f1_thresh": -1.0,
    }


def test_best_threshold_is_the_best_of_all_and_gives_its_score():
    random = np.random.default_rng(5)
    for _ in range(300):
        size = random.integers(1, 9)
        examples = [
            example(str(n), *(["w x"] if random.random() < 0.5 else [])) for n in range(size)
        ]
        texts = {e.id: random.choice(["w x", "w", "z"]) for e in examples}
        differences = {e.id: float(random.integers(-3, 4)) for e in examples}

        def applied(threshold):
            predictions = {
                id: "" if differences[id] > threshold else text for id, text in texts.items()
            }
            return squad_scores(examples, predictions, version_2=True)

        results = best_null_thresholds(examples, texts, differences)
        for name in ("exact", "f1"):
            best = max(applied(threshold)[name] for threshold in (-100.0, *differences.values()))
            assert results[f"best_{name}"] == pytest.approx(best)
            assert applied(results[f"best_{name}_thresh"])[name] == pytest.approx(best)


def test_without_true_answers_there_is_no_score():
    with pytest.raises(UserError, match="1 of 1 without"):
        squad_scores([SquadExample("1", "?", "", has_answers=False)], {"1": "cat"})
