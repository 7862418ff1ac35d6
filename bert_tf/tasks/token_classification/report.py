"""Details of the scores of token classification: intervals, confusions and wrong sentences.

Glossary: `S` sentences, `L` labels.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.tasks.token_classification.metrics import tagging_scores
from bert_tf.tasks.token_classification.tag_schemes import (
    OUTSIDE,
    Span,
    are_span_tags,
    spans_of_tags,
)
from bert_tf.training.evaluation.bootstrap import drawn_intervals

_NO_LABEL = "_"  # seqeval's label for spans without a label, as in segmentation


class SentenceErrors(NamedTuple):
    """The errors in one sentence: spans, or words if the tags are not span tags."""

    missed: list[Span]  # gold and not predicted
    wrong: list[Span]  # predicted and not gold


def tagging_intervals(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Computes bootstrap intervals over sentences for the scores of `tagging_scores`.

    Args:
        gold, predicted: See `tagging_scores`.
        samples, confidence, seed: See `bert_tf.training.evaluation.bootstrap.drawn_intervals`.

    Returns:
        The intervals (low, high) by the name of the score, over the draws that have the label.

    Raises:
        UserError: See `tagging_scores`, or if `samples` or `confidence` is out of range.

    Example:
        >>> gold = [["B-PER", "I-PER", "O"]] * 5
        >>> bert_tf.tasks.token_classification.tagging_intervals(gold, gold, samples=10)["f1"]
        (1.0, 1.0)
    """
    names = tagging_scores(gold, predicted)  # also checks the arguments
    words = np.array([len(tags) for tags in gold])
    hits = np.array([sum(a == b for a, b in zip(*tags)) for tags in zip(gold, predicted)])
    labels, counts = [], np.zeros([len(gold), 0, 3], np.int64)
    if "f1" in names:
        labels, counts = span_counts(gold, predicted)
    suffixes = ["", *(f"_{label}" for label in labels)]

    def scores(rows):
        results = {}
        if words[rows].sum():
            results["accuracy"] = hits[rows].sum() / words[rows].sum()
        of_labels = counts[rows].sum(axis=0)  # [S, L, 3] -> [L, 3]
        for suffix, (right, found, true) in zip(suffixes, [of_labels.sum(axis=0), *of_labels]):
            if found + true:
                results[f"precision{suffix}"] = right / max(found, 1)
                results[f"recall{suffix}"] = right / max(true, 1)
                results[f"f1{suffix}"] = 2 * right / (found + true)
        return results

    intervals = drawn_intervals(scores, len(gold), samples, confidence, seed)
    return {name: intervals[name] for name in names if name in intervals}


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[list[str], np.ndarray]:
    """Counts the spans of each label in each sentence.

    Returns:
        The labels, sorted, and int64 `[S, L, 3]`: the correct, the predicted and the gold spans.
    """
    pairs = [tuple(set(spans_of_tags(tags)) for tags in rows) for rows in zip(gold, predicted)]
    labels = sorted({span.label or _NO_LABEL for pair in pairs for row in pair for span in row})
    places = {label: place for place, label in enumerate(labels)}
    counts = np.zeros([len(pairs), len(labels), 3], np.int64)
    for row, (true, found) in enumerate(pairs):
        for column, spans in enumerate((true & found, found, true)):
            for span in spans:
                counts[row, places[span.label or _NO_LABEL], column] += 1
    return labels, counts


def sentence_errors(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> list[SentenceErrors]:
    """Returns the errors in each sentence, in the order of the words."""
    of_spans = _are_spans(gold, predicted)
    errors = []
    for rows in zip(gold, predicted):
        true, found = (set(spans_of_tags(tags) if of_spans else _word_spans(tags)) for tags in rows)
        errors.append(SentenceErrors(sorted(true - found), sorted(found - true)))
    return errors


def word_labels(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Returns the labels of all words for a confusion matrix.

    Returns:
        The names of the labels (for spans without labels, the tags), `O` first, and the ids of all
        words, gold and predicted, each int64 `[W]`.
    """
    sides = gold, predicted
    columns = [[tag for tags in side for tag in tags] for side in sides]
    if _are_spans(*sides):
        labels = [[label for tags in side for label in _labels_of_words(tags)] for side in sides]
        if not {_NO_LABEL, OUTSIDE}.issuperset({*labels[0], *labels[1]}):
            columns = labels
    names = sorted({*columns[0], *columns[1]}, key=lambda name: (name != OUTSIDE, name))
    ids = {name: place for place, name in enumerate(names)}
    true, found = (np.array([ids[name] for name in column]) for column in columns)
    return names, true, found


def _are_spans(gold, predicted):
    return all(are_span_tags(tags) for tags in (*gold, *predicted))


def _labels_of_words(tags):
    labels = [OUTSIDE] * len(tags)
    for start, end, label in spans_of_tags(tags):
        labels[start:end] = [label or _NO_LABEL] * (end - start)
    return labels


def _word_spans(tags):
    return [Span(place, place + 1, tag) for place, tag in enumerate(tags)]
