"""Details of the scores of token classification, against seqeval and against plain loops."""

import random

import numpy as np
import pytest
from seqeval import metrics
from seqeval import scheme as schemes

from bert_tf.errors import UserError
from bert_tf.tasks.token_classification import Span, convert_tags, tagging_intervals, tagging_scores
from bert_tf.tasks.token_classification.metrics import (
    sentence_errors,
    span_counts,
    tagging_score_rows,
    word_labels,
)
from bert_tf.tasks.token_classification.tag_schemes import spans_of_tags, tags_of_spans

GENERATOR = random.Random(3)
TAGS = ["O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def sentences(count, agree):
    """Tags that break their scheme here and there, and predictions that mostly agree."""
    gold = [GENERATOR.choices(TAGS, k=GENERATOR.randint(1, 9)) for _ in range(count)]
    predicted = [
        [tag if GENERATOR.random() < agree else GENERATOR.choice(TAGS) for tag in row]
        for row in gold
    ]
    return gold, predicted


GOLD, PREDICTED = sentences(150, 0.8)


def test_counts_are_seqevals():
    labels, counts = span_counts(GOLD, PREDICTED)
    assert labels == ["LOC", "PER"] and counts.shape == (150, 2, 3)
    expected = tagging_scores(GOLD, PREDICTED)
    for suffix, (right, found, true) in zip(
        ("", "_LOC", "_PER"), (counts.sum((0, 1)), *counts.sum(0))
    ):
        assert right / found == pytest.approx(expected[f"precision{suffix}"])
        assert right / true == pytest.approx(expected[f"recall{suffix}"])
        assert 2 * right / (found + true) == pytest.approx(expected[f"f1{suffix}"])


def test_intervals_are_percentiles_of_drawn_sentences():
    """The same draws, each scored whole by seqeval."""
    found = tagging_intervals(GOLD, PREDICTED, samples=40, confidence=0.9, seed=7)
    generator = np.random.default_rng(7)
    drawn = []
    for _ in range(40):
        rows = generator.integers(0, 150, 150)
        drawn.append(tagging_scores([GOLD[r] for r in rows], [PREDICTED[r] for r in rows]))
    assert set(found) == set(tagging_scores(GOLD, PREDICTED))
    for name, ends in found.items():
        values = [scores[name] for scores in drawn]
        np.testing.assert_allclose(ends, np.percentile(values, [5, 95]), atol=1e-9)
    assert found["f1"][0] < tagging_scores(GOLD, PREDICTED)["f1"] < found["f1"][1]


SPELLINGS = {"IOB2": "", "BIOES": "", "BILOU": "IIELSU", "BMES": "IMEESS"}


def tags_in(scheme, spans, length):
    """The tags of a scheme, which the letters of BIOES are replaced for."""
    tags = tags_of_spans(spans, length, "IOB2" if scheme == "IOB2" else "BIOES")
    letters = dict(zip(SPELLINGS[scheme][::2], SPELLINGS[scheme][1::2]))
    return [letters.get(tag[0], tag[0]) + tag[1:] for tag in tags]


@pytest.mark.parametrize("scheme", SPELLINGS)
def test_scores_of_every_scheme_are_seqevals_and_in_their_intervals(scheme):
    """Strict mode, with the scheme; seqeval has no BMES, whose letters are those of BIOES."""
    strict = {"IOB2": schemes.IOB2, "BILOU": schemes.BILOU}.get(scheme, schemes.IOBES)
    sides = [[spans_of_tags(tags) for tags in side] for side in (GOLD, PREDICTED)]
    lengths = list(map(len, GOLD))
    gold, predicted = (
        [tags_in(scheme, *row) for row in zip(side, lengths, strict=True)] for side in sides
    )
    known = "BIOES" if scheme == "BMES" else scheme
    report = metrics.classification_report(
        *([tags_in(known, *row) for row in zip(side, lengths)] for side in sides),
        mode="strict",
        scheme=strict,
        output_dict=True,
    )
    found = tagging_scores(gold, predicted)
    for suffix, key in (("", "micro avg"), ("_PER", "PER"), ("_LOC", "LOC")):
        assert found[f"f1{suffix}"] == pytest.approx(report[key]["f1-score"]), suffix
        assert found[f"recall{suffix}"] == pytest.approx(report[key]["recall"])
    for name, (low, high) in tagging_intervals(gold, predicted, samples=30).items():
        assert low < found[name] < high


# Some predicted tags break the scheme.
BROKEN = {
    "IOB2": (
        [["B-A", "I-A", "O", "B-B"], ["B-A", "O", "B-B", "I-B"]],
        [["I-A", "I-A", "O", "B-B"], ["B-A", "I-B", "B-B", "I-B"]],
    ),
    "BIOES": (
        [["B-A", "E-A", "O", "S-B"], ["S-A", "O", "B-B", "E-B"]],
        [["B-A", "I-A", "O", "S-B"], ["S-A", "S-A", "B-B", "E-B"]],
    ),
    "BILOU": (
        [["B-A", "L-A", "O", "U-B"], ["U-A", "O", "B-B", "L-B"]],
        [["B-A", "I-A", "O", "U-B"], ["U-A", "U-A", "B-B", "L-B"]],
    ),
    "IOE2": (
        [["I-A", "E-A", "O", "E-B"], ["E-A", "O", "I-B", "E-B"]],
        [["I-A", "I-A", "O", "E-B"], ["E-A", "O", "I-B", "E-B"]],
    ),
    "IOB1": (
        [["I-A", "B-A", "O", "I-B"], ["I-A", "O", "I-B", "I-B"]],
        [["B-A", "B-A", "O", "I-B"], ["I-A", "O", "I-B", "I-B"]],
    ),
}
# seqeval 1.2.2: the f1-score of "micro avg", "macro avg" and "weighted avg" of
# classification_report(*BROKEN[scheme], mode="strict", scheme=…, output_dict=True)
STRICT = {
    "IOB2": (0.8571428571428571, 0.8333333333333333, 0.8333333333333333),
    "BIOES": (0.75, 0.75, 0.75),
    "BILOU": (0.75, 0.75, 0.75),
    "IOE2": (0.8571428571428571, 0.8333333333333333, 0.8333333333333333),
    "IOB1": (0.888888888888889, 0.9, 0.8800000000000001),
}


@pytest.mark.parametrize("scheme", BROKEN)
def test_strict(scheme):
    gold, predicted = BROKEN[scheme]
    found = tagging_scores(gold, predicted, scheme)
    names = ("f1", "macro_f1", "weighted_f1")
    assert [found[name] for name in names] == pytest.approx(STRICT[scheme], abs=1e-9)
    rows = tagging_score_rows(gold, predicted, scheme)(np.arange(2))
    assert rows == pytest.approx({name: found[name] for name in rows})
    assert set(rows) == set(found)
    if scheme == "BIOES":
        as_bmes = [
            [[tag.replace("I-", "M-") for tag in row] for row in side] for side in (gold, predicted)
        ]
        assert tagging_scores(*as_bmes, "BMES") == found


def test_means_are_seqevals():
    report = metrics.classification_report(GOLD, PREDICTED, output_dict=True)
    found = tagging_scores(GOLD, PREDICTED)
    for ours, theirs in (("macro", "macro avg"), ("weighted", "weighted avg")):
        assert found[f"{ours}_f1"] == pytest.approx(report[theirs]["f1-score"])
        assert found[f"{ours}_precision"] == pytest.approx(report[theirs]["precision"])
        assert found[f"{ours}_recall"] == pytest.approx(report[theirs]["recall"])
    assert tagging_scores(GOLD, PREDICTED, "IOB2")["f1"] != found["f1"]


def test_no_span_keeps_to_the_scheme():
    found = tagging_scores([["I-A", "I-A"]], [["I-A", "O"]], "IOB2")
    assert found["f1"] == found["macro_f1"] == found["weighted_f1"] == 0.0
    found = tagging_scores([["O", "O"]], [["B-A", "O"]], "IOB2")
    assert found["f1"] == found["weighted_f1"] == 0.0


@pytest.mark.parametrize(
    "tags, scheme, message",
    [
        (["B-A", "S-B"], "IOB2", r"`gold` must have tags of IOB2.*Received: 'S-B' in row 1"),
        (["B-A", "NN"], "BIOES", "'NN' in row 1"),
        (["B-A", "O-A"], "IOB2", "'O-A' in row 1"),
        (["B-A", "B-"], "IOB2", "'B-' in row 1"),
        (["B-A", ""], "IOB2", "'' in row 1"),
        (["B-A", "O"], "IOBES", "`scheme` must be one of"),
    ],
)
def test_tags_of_another_scheme(tags, scheme, message):
    gold = [[tag] for tag in tags]
    with pytest.raises(UserError, match=message):
        tagging_scores(gold, [["O"], ["O"]], scheme)


def test_what_has_no_spans():
    assert tagging_intervals([["NN", "VB"]] * 3, [["NN", "NN"]] * 3, samples=5) == {
        "accuracy": (0.5, 0.5)
    }
    assert tagging_intervals([["O"]], [["O"]], samples=5) == {"accuracy": (1.0, 1.0)}
    with pytest.raises(UserError, match="same sentences"):
        tagging_intervals([["O"]], [["O", "O"]])
    with pytest.raises(UserError, match="samples=0"):
        tagging_intervals([["O"]], [["O"]], samples=0)


def test_errors_of_sentences():
    gold = [["B-PER", "I-PER", "O"], ["O", "B-LOC"], ["O"]]
    predicted = [["B-PER", "O", "O"], ["O", "B-LOC"], ["S-PER"]]
    assert sentence_errors(gold, predicted) == [
        ([Span(0, 2, "PER")], [Span(0, 1, "PER")]),
        ([], []),
        ([], [Span(0, 1, "PER")]),
    ]
    assert sentence_errors([["NN", "VB"]], [["NN", "NN"]]) == [
        ([Span(1, 2, "VB")], [Span(1, 2, "NN")])
    ]
    # However the spans are written.
    assert sentence_errors([convert_tags(gold[0], "BIOES")], [gold[0]]) == [([], [])]


def test_labels_of_words():
    names, true, found = word_labels([["B-PER", "E-PER", "O"]], [["B-LOC", "O", "O"]])
    assert names == ["O", "LOC", "PER"]
    assert true.tolist() == [2, 2, 0] and found.tolist() == [1, 0, 0]
    assert word_labels([["NN", "VB"]], [["NN", "NN"]])[0] == ["NN", "VB"]
    assert word_labels([["B", "I"]], [["B", "B"]])[0] == ["B", "I"]  # segmentation
