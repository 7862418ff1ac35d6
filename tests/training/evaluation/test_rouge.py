"""ROUGE of texts, by its definition."""

import sys

import numpy as np
import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.tasks import extractive_summarization
from bert_tf.training.evaluation.generated_text import rouge_of_texts, rouge_scores


def test_means_over_texts():
    pytest.importorskip("rouge_score", reason="needs rouge-score")
    scores = rouge_scores(["Ada wrote it. It rained.", "c"], ["It rained. Ada wrote.", "d"])
    # Of the first: 5 and 4 words, 4 in common; 2 of 4 and 3 bigrams; two words in order.
    expected = {"rouge1": 8 / 9, "rouge2": 4 / 7, "rougeL": 4 / 9, "rougeLsum": 8 / 9}
    assert scores == pytest.approx({name: 50 * value for name, value in expected.items()})
    assert extractive_summarization.rouge_scores is rouge_scores


def test_units():
    pytest.importorskip("rouge_score", reason="needs rouge-score")
    one, other = ["the cats 我用系统"], ["the cat 我系统"]

    def rouge1(**options):
        return rouge_of_texts(one, other, ["rouge1"], **options)

    np.testing.assert_allclose(rouge1(), [[100.0]])  # "cat" twice; other letters do not count
    np.testing.assert_allclose(rouge1(use_stemmer=False), [[50.0]])
    np.testing.assert_allclose(rouge1(ideographs=True), [[100 * 2 * 4 / (6 + 5)]])


def test_without_rouge_score(monkeypatch):
    monkeypatch.setitem(sys.modules, "rouge_score.rouge_scorer", None)  # not to be imported
    with pytest.raises(UserError, match=r"Run `pip install 'bert-tf\[generation\]'`"):
        rouge_scores(["a"], ["a"])


def test_bad_arguments():
    for predicted, references in (([], []), (["a"], [])):
        with pytest.raises(DataError, match="`references` must have one entry for each"):
            rouge_scores(predicted, references)
