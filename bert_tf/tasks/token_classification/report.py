"""What stands behind the scores of a tagger: intervals, what is taken for what, which sentences.

Spans add up over sentences, so a draw of the bootstrap is a sum of counts.

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

# What seqeval calls spans without a label, as those of segmentation.
_NO_LABEL = "_"


class SentenceErrors(NamedTuple):
    """What is wrong in one sentence.

    Attributes:
        missed: Gold spans that were not found, for tags of single words gold words.
        wrong: Spans, or words, that were found and are none.
    """

    missed: list[Span]
    wrong: list[Span]


def tagging_intervals(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    samples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, tuple[float, float]]:
    """Bootstrap intervals over sentences of the scores of `tagging_scores`.

    Args:
        gold: As in `tagging_scores`.
        predicted: As in `tagging_scores`.
        samples: As in `drawn_intervals`.
        confidence: As in `drawn_intervals`.
        seed: As in `drawn_intervals`.

    Returns:
        Name to (low, high). A draw without a span of a label does not count for its scores.

    Raises:
        UserError: As `tagging_scores`.

    Example:
        >>> gold = [["B-PER", "I-PER", "O"]] * 5
        >>> bert_tf.tasks.token_classification.tagging_intervals(gold, gold, samples=10)["f1"]
        (1.0, 1.0)
    """
    names = tagging_scores(gold, predicted)  # and says what does not fit
    words = np.array([len(tags) for tags in gold])
    hits = np.array([sum(a == b for a, b in zip(*tags)) for tags in zip(gold, predicted)])
    labels, counts = [], np.zeros([len(gold), 0, 3], np.int64)
    if "f1" in names:
        labels, counts = span_counts(gold, predicted)

    def scores(rows):
        results = {}
        if words[rows].sum():
            results["accuracy"] = hits[rows].sum() / words[rows].sum()
        of_labels = counts[rows].sum(axis=0)  # [S, L, 3] -> [L, 3]
        _add_scores(results, "", of_labels.sum(axis=0))
        for label, of_label in zip(labels, of_labels):
            _add_scores(results, f"_{label}", of_label)
        return results

    intervals = drawn_intervals(scores, len(gold), samples, confidence, seed)
    return {name: intervals[name] for name in names if name in intervals}


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[list[str], np.ndarray]:
    """How many spans there are of each label in each sentence.

    Args:
        gold: A list of span tags for each sentence.
        predicted: The model's.

    Returns:
        The labels, sorted, and int64 `[S, L, 3]`: spans found rightly, found, and in the gold tags.
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
    """What is missed and what is wrong in each sentence, in the order of the words."""
    of_spans = _are_spans(gold, predicted)
    errors = []
    for rows in zip(gold, predicted):
        true, found = (set(spans_of_tags(tags) if of_spans else _words(tags)) for tags in rows)
        errors.append(SentenceErrors(sorted(true - found), sorted(found - true)))
    return errors


def word_labels(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The label of every word, for a confusion matrix.

    Args:
        gold: A list of tags for each sentence.
        predicted: The model's.

    Returns:
        The labels' names (`O` first, where tags stand for spans with labels; else the tags), and
        the ids of all words, gold and predicted, int64 `[W]` each.
    """
    columns = [[tag for tags in side for tag in tags] for side in (gold, predicted)]
    if _are_spans(gold, predicted):
        labels = [[_labels_of_words(tags) for tags in side] for side in (gold, predicted)]
        flat = [[label for row in side for label in row] for side in labels]
        if not {_NO_LABEL}.issuperset({*flat[0], *flat[1]} - {OUTSIDE}):
            columns = flat
    names = sorted({*columns[0], *columns[1]}, key=lambda name: (name != OUTSIDE, name))
    ids = {name: place for place, name in enumerate(names)}
    true, found = (np.array([ids[name] for name in column]) for column in columns)
    return names, true, found


def _add_scores(results, suffix, counts):
    right, found, true = counts
    if found + true == 0:
        return
    results[f"precision{suffix}"] = right / max(found, 1)
    results[f"recall{suffix}"] = right / max(true, 1)
    results[f"f1{suffix}"] = 2 * right / (found + true)


def _are_spans(gold, predicted):
    return all(are_span_tags(tags) for tags in (*gold, *predicted))


def _labels_of_words(tags):
    labels = [OUTSIDE] * len(tags)
    for start, end, label in spans_of_tags(tags):
        labels[start:end] = [label or _NO_LABEL] * (end - start)
    return labels


def _words(tags):
    return [Span(place, place + 1, tag) for place, tag in enumerate(tags)]
