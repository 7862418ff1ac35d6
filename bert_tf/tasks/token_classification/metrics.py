"""Precision, recall and F1 of tagged spans; intervals, confusions and wrong sentences.

Glossary: `S` sentences, `L` labels, `W` words.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import keras
import numpy as np

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import DataError, UserError, require_one_of, user_error
from bert_tf.tasks.token_classification.tag_schemes import (
    OUTSIDE,
    STRICT_SCHEMES,
    Span,
    are_span_tags,
    convert_tags,
    spans_of_tags,
)
from bert_tf.training.evaluation.scores import drawn_intervals


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: str | None = None
) -> dict[str, float]:
    """Computes the scores of CoNLL 2003: a span is correct if its borders and its label are.

    Args:
        gold, predicted: A list of tags for each sentence, in any of the schemes IOB1, IOB2, BIOES,
            BILOU and BMES.
        scheme: One of "IOB1", "IOB2", "IOE1", "IOE2", "BIOES" (IOBES), "BILOU" and "BMES": tags
            that break this scheme are no spans, as in seqeval's strict mode. None: a tag that
            continues no span begins one, in any scheme, as in conlleval.pl.

    Returns:
        Scores from 0 to 1: `accuracy` over words and, for span tags, `precision`, `recall` and `f1`
        over all spans, for each label, such as `f1_PER`, and their means over the labels, such as
        `macro_f1` and, weighted by the number of gold spans, `weighted_f1`. They are 0 if there is
        no span.

    Raises:
        UserError: If the sentences have different lengths, there are no words, the scheme is
            unknown or seqeval is missing.
        DataError: If a tag has a prefix that the scheme does not have.

    Example:
        >>> gold, predicted = [["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]]
        >>> bert_tf.tasks.token_classification.tagging_scores(gold, predicted)["f1"]
        0.0

    Reference: seqeval, equal to conlleval.pl of CoNLL 2000.
    """
    gold, predicted = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    if [len(tags) for tags in gold] != [len(tags) for tags in predicted]:
        raise UserError(
            "`gold` and `predicted` must have the same sentences, with one tag per word. Received: "
            f"{len(gold)} sentences with {sum(map(len, gold))} tags and {len(predicted)} with "
            f"{sum(map(len, predicted))}"
        )
    pairs = [pair for rows in zip(gold, predicted) for pair in zip(*rows)]
    if not pairs:
        raise UserError("`gold` must have at least one word. Received: none")
    scores = {"accuracy": sum(a == b for a, b in pairs) / len(pairs)}
    sides = gold, predicted
    if scheme is not None:
        sides = [
            _in_seqevals_scheme(name, side, scheme)
            for name, side in (("gold", gold), ("predicted", predicted))
        ]
    elif not _are_spans(gold, predicted):
        return scores
    names = (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score"))
    scores |= {prefix + name: 0.0 for prefix in ("", *_MEANS.values()) for name, _ in names}
    if not any(tag != OUTSIDE for pair in pairs for tag in pair):
        return scores
    metrics = require_seqeval()
    options = {"output_dict": True, "zero_division": 0}
    if scheme is None:
        # seqeval's default mode knows neither `U` nor `L`.
        sides = [[convert_tags(tags, "IOB2") for tags in side] for side in sides]
    else:
        options |= {"mode": "strict", "scheme": _seqeval_scheme(scheme)}
        if not any(_strict_spans(tags, scheme) for side in (gold, predicted) for tags in side):
            return scores
    for label, values in metrics.classification_report(*sides, **options).items():
        for name, key in names:
            prefix, suffix = _MEANS.get(label, ""), f"_{label}"
            full = prefix + name + ("" if label in _MEANS or label == "micro avg" else suffix)
            scores[full] = float(values[key])
    return scores


_MEANS = {"macro avg": "macro_", "weighted avg": "weighted_"}  # seqeval's names


def _seqeval_scheme(scheme):
    require_seqeval()
    return getattr(require_package("seqeval.scheme", "scores of spans"), STRICT_SCHEMES[scheme][1])


def _in_seqevals_scheme(name, sentences, scheme):
    """Returns tags as seqeval spells them. Raises `DataError` for a tag of another scheme."""
    require_one_of("scheme", scheme, tuple(STRICT_SCHEMES))
    letters = STRICT_SCHEMES[scheme][0]
    for number, tags in enumerate(sentences):
        for tag in tags:
            prefix, dash, label = tag.partition("-")
            is_known = prefix in letters and len(prefix) == 1 and not (dash and not label)
            if not is_known or (prefix == OUTSIDE and dash):
                expected = f"have tags of {scheme}: {OUTSIDE}, or {'/'.join(letters)} and a label"
                raise user_error(f"`{name}`", expected, f"{tag!r} in row {number}", DataError)
    if scheme != "BMES":
        return sentences
    return [["I" + tag[1:] if tag[0] == "M" else tag for tag in tags] for tags in sentences]


def _strict_spans(tags, scheme):
    """Returns the spans of a sentence whose tags keep to the scheme."""
    (tags,) = _in_seqevals_scheme("tags", [tags], scheme)
    entities = require_package("seqeval.scheme", "scores of spans").Entities
    (found,) = entities([tags], _seqeval_scheme(scheme)).entities
    return [Span(entity.start, entity.end, entity.tag) for entity in found]


def require_seqeval():
    """Returns `seqeval.metrics`. Programs call this before any work.

    Raises:
        UserError: If seqeval is missing.
    """
    return require_package("seqeval.metrics", "scores of spans")


_LOGGED = ("precision", "recall", "f1", "macro_f1", "weighted_f1")


class TaggingScores(keras.callbacks.Callback):
    """Adds `tagging_scores` of held-out sentences to the logs of each epoch.

    They are `val_precision`, `val_recall`, `val_f1`, `val_macro_f1` and `val_weighted_f1`; without
    spans `val_word_accuracy`.

    Args:
        sentences, tags: Held-out sentences, lists of words, and their tags, in the scheme of the
            model's labels.
        scheme: See `tagging_scores`.
        restore_best_weights: Whether the model gets the weights of the epoch with the best F1
            (accuracy) at the end of training.

    Attributes:
        best_score, best_epoch: The best F1 (accuracy) so far, and its epoch, starting from 0.

    Example:
        >>> model = bert_tf.BertTokenClassifier.from_pretrained("bert-base/", labels=["O", "B-PER"])
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> scores = TaggingScores([["Ada", "wrote"]], [["B-PER", "O"]])
        >>> history = model.fit([["Ada", "wrote"]], [["B-PER", "O"]], callbacks=[scores])
        >>> "val_f1" in history.history
        True
    """

    def __init__(
        self, sentences, tags, restore_best_weights: bool = False, scheme: str | None = None
    ):
        super().__init__()
        self.sentences = sentences
        self.tags = tags
        self.scheme = scheme
        self.restore_best_weights = restore_best_weights
        self.best_score = -1.0
        self.best_epoch = None
        self._best_weights = None

    def on_train_begin(self, logs=None):
        # What is wrong with the data is found before the first epoch.
        outside = [[OUTSIDE] * len(words) for words in self.sentences]
        tagging_scores(self.tags, outside, self.scheme)

    def on_epoch_end(self, epoch, logs=None):
        predicted = self.model.predict_tags(self.sentences)
        scores = tagging_scores(self.tags, predicted, self.scheme)
        score = scores.get("f1", scores["accuracy"])
        if logs is not None and "f1" in scores:
            logs.update({f"val_{name}": scores[name] for name in _LOGGED})
        elif logs is not None:
            logs["val_word_accuracy"] = score
        if score > self.best_score:
            self.best_score, self.best_epoch = score, epoch
            if self.restore_best_weights:
                self._best_weights = self.model.get_weights()

    def on_train_end(self, logs=None):
        if self._best_weights is not None:
            self.model.set_weights(self._best_weights)


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
    scheme: str | None = None,
) -> dict[str, tuple[float, float]]:
    """Computes bootstrap intervals over sentences for the scores of `tagging_scores`.

    Args:
        gold, predicted, scheme: See `tagging_scores`.
        samples, confidence, seed: See `bert_tf.training.evaluation.scores.drawn_intervals`.

    Returns:
        The intervals (low, high) by the name of the score, over the draws that have the label.

    Raises:
        UserError: See `tagging_scores`, or if `samples` or `confidence` is out of range.

    Example:
        >>> gold = [["B-PER", "I-PER", "O"]] * 5
        >>> bert_tf.tasks.token_classification.tagging_intervals(gold, gold, samples=10)["f1"]
        (1.0, 1.0)
    """
    scores = tagging_score_rows(gold, predicted, scheme)
    intervals = drawn_intervals(scores, len(gold), samples, confidence, seed)
    names = scores(np.arange(len(gold)))
    return {name: intervals[name] for name in names if name in intervals}


def tagging_score_rows(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: str | None = None
) -> Callable[[np.ndarray], dict[str, float]]:
    """Returns a function from the indices of sentences to the scores that are defined for them.

    The arguments and errors are those of `tagging_scores`.
    """
    names = tagging_scores(gold, predicted, scheme)  # also checks the arguments
    words = np.array([len(tags) for tags in gold])
    hits = np.array([sum(a == b for a, b in zip(*tags)) for tags in zip(gold, predicted)])
    labels, counts = [], np.zeros([len(gold), 0, 3], np.int64)
    if "f1" in names:
        labels, counts = span_counts(gold, predicted, scheme)
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
        for name in ("precision", "recall", "f1"):
            pairs = zip(labels, of_labels[:, 2])  # labels that neither side has in `rows` are none
            there = [
                (results[key], true)
                for label, true in pairs
                if (key := f"{name}_{label}") in results
            ]
            if there:
                values, weights = map(np.array, zip(*there))
                results[f"macro_{name}"] = values.mean()
                total = max(weights.sum(), 1)
                results[f"weighted_{name}"] = (values * weights).sum() / total
        return results

    return scores


def span_counts(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]], scheme: str | None = None
) -> tuple[list[str], np.ndarray]:
    """Counts the spans of each label in each sentence; `scheme` as for `tagging_scores`.

    Returns:
        The labels, sorted, and int64 `[S, L, 3]`: the correct, the predicted and the gold spans.
    """

    def spans(tags):
        return set(spans_of_tags(tags) if scheme is None else _strict_spans(tags, scheme))

    pairs = [tuple(map(spans, rows)) for rows in zip(gold, predicted)]
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
