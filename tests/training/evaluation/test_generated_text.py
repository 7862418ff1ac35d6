"""Scores of generated texts, compared with sacrebleu's and rouge-score's own."""

import sys

import numpy as np
import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.training.evaluation.generated_text import (
    generated_text_rows,
    generated_text_scores,
    require_text_metrics,
)
from bert_tf.training.evaluation.scores import drawn_intervals

PREDICTED = ["the cat sat on the mat .", "a dog ran home", "it rains", "no", ""]
REFERENCES = ["the cat sat on a mat.", "the dog ran home", "it rained today", "no", "yes"]

SEVERAL = [
    ["the cat sat on a mat.", "the cat was on the mat ."],
    ["the dog ran home"],
    ["it rained today", "it is raining", "it rains today"],
    ["no", "nope"],
    ["yes"],
]


@pytest.fixture
def sacrebleu():
    pytest.importorskip("rouge_score", reason="needs sacrebleu and rouge-score")
    return pytest.importorskip("sacrebleu", reason="needs sacrebleu and rouge-score")


@pytest.mark.parametrize("tokenize", ["13a", "zh"])
def test_scores_of_the_corpus(sacrebleu, tokenize):
    scores = generated_text_scores(PREDICTED, REFERENCES, tokenize)
    bleu = sacrebleu.corpus_bleu(PREDICTED, [REFERENCES], tokenize=tokenize)
    chrf = sacrebleu.corpus_chrf(PREDICTED, [REFERENCES])
    assert 0 < scores["bleu"] < 100
    np.testing.assert_allclose([scores["bleu"], scores["chrf"]], [bleu.score, chrf.score])
    # F1 of the words of each text: 5 of 6, 3 of 4, 1 of 2 and 3, 1 of 1, none.
    np.testing.assert_allclose(scores["rouge1"], 20 * (5 / 6 + 3 / 4 + 2 / 5 + 1), rtol=1e-6)


def test_units_of_chinese(sacrebleu):
    scores = generated_text_scores(["我用 Debian 系统"], ["我用Debian"], "zh")
    np.testing.assert_allclose(scores["rouge1"], 100 * 2 * 3 / (3 + 5))
    assert generated_text_scores(["我用系统"], ["我用系统"], "13a")["rouge1"] == 0.0


def test_intervals_contain_the_score(sacrebleu):
    predicted, references = PREDICTED[:4] * 10, REFERENCES[:4] * 10
    scores = generated_text_scores(predicted, references)
    rows = generated_text_rows(predicted, references)
    intervals = drawn_intervals(rows, len(predicted), 50)
    assert intervals.keys() == scores.keys()
    for name, (low, high) in intervals.items():
        assert low < scores[name] < high
    assert intervals == drawn_intervals(rows, len(predicted), 50)


def test_several_references(sacrebleu):
    """sacrebleu 2.6.0 with `itertools.zip_longest(*SEVERAL)`: BLEU, chrF, chrF++ and TER."""
    scores = generated_text_scores(PREDICTED, SEVERAL)
    expected = {
        "bleu": 60.59759337811309,
        "chrf": 65.40694658467235,
        "chrf++": 66.78309605912716,
        "ter": 25.806451612903224,
        # rouge_score 0.1.2 printed these, with `score_multi`: the best reference of each text.
        "rouge1": 67.66666666666667,
        "rouge2": 38.666666666666664,
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected)
    singly = [[several[0]] for several in SEVERAL]
    one = generated_text_scores(PREDICTED, singly)
    assert one == generated_text_scores(PREDICTED, [several[0] for several in SEVERAL])
    assert one["bleu"] < scores["bleu"] and one["ter"] > scores["ter"]


def test_some_scores(sacrebleu):
    scores = generated_text_scores(PREDICTED, SEVERAL)
    for names in (["ter"], ["rougeL", "bleu"], ["rouge2"]):
        found = generated_text_scores(PREDICTED, SEVERAL, names=names)
        assert found == pytest.approx({name: scores[name] for name in names})


def test_ter_of_chinese_counts_ideographs(sacrebleu):
    assert generated_text_scores(["我用系统"], ["我用了系统"], "zh")["ter"] == pytest.approx(20.0)
    assert generated_text_scores(["我用系统"], ["我用了系统"], "13a")["ter"] == 100.0


def test_what_is_refused():
    with pytest.raises(UserError, match="`tokenize` must be one of"):
        generated_text_scores(["a"], ["a"], "words")
    with pytest.raises(UserError, match="`names` must be one of .*'meteor'"):
        generated_text_scores(["a"], ["a"], names=["meteor"])
    with pytest.raises(DataError, match=r"len\(references\)=2, len\(predicted\)=1"):
        generated_text_scores(["a"], ["a", "b"])
    with pytest.raises(DataError, match="at least one"):
        generated_text_scores([], [])
    for wrong in ([], ["b", None], None, 3):
        with pytest.raises(DataError, match=r"`references` must be .*Received: .* in row 1"):
            generated_text_scores(["a", "b"], ["a", wrong])
    with pytest.raises(DataError, match="`predicted` must be .* None in row 0"):
        generated_text_scores([None], ["a"])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score", None)
    with pytest.raises(UserError, match=r"`pip install 'bert-tf\[generation\]'`"):
        require_text_metrics()
