"""The scores and errors that bert-tf evaluate reports for each kind of predictions."""

import dataclasses
import itertools
import os
from collections.abc import Callable

import numpy as np

from bert_tf.config import MULTI_LABEL, REGRESSION

_NONE = "none"


@dataclasses.dataclass
class Evaluation:
    """The scores of predictions, with confidence intervals, confusion matrix and worst errors."""

    counted: str  # what was scored, such as "872 examples"
    results: dict  # all scores, by name
    intervals: dict  # their confidence intervals (low, high), by name, where they are defined
    official: tuple = ()  # the names of the scores that the task's benchmark reports
    lines: list = dataclasses.field(default_factory=list)  # what there is to say of classes
    save_pictures: Callable = lambda directory: None  # writes what there is to draw
    columns: str = ""  # the names of the columns of `errors`
    errors: list = dataclasses.field(default_factory=list)  # tab-separated, the worst error first


def of_classes(examples, gold, predicted, labels, task, num_errors, threshold=None, **bootstrap):
    """Evaluates predictions for texts or pairs, as in `all_scores`: classes, labels or numbers.

    `labels` are those of the columns; `bootstrap` has `samples`, `confidence` and `seed`.
    """
    from bert_tf.training.evaluation.probabilities import decide
    from bert_tf.training.evaluation.reports import ClassReport
    from bert_tf.training.evaluation.scores import all_scores, bootstrap_intervals

    kind = task.problem_type
    evaluation = Evaluation(
        f"{len(examples)} examples",
        all_scores(gold, predicted, kind, threshold),
        bootstrap_intervals(gold, predicted, kind, threshold=threshold, **bootstrap),
        task.metrics,
        columns="how wrong, expected, predicted, example, text",
    )
    if kind != REGRESSION:
        report = ClassReport(gold, predicted, kind, labels, threshold)
        evaluation.lines, evaluation.save_pictures = report.lines(), report.save_pictures
    decided = decide(predicted, kind, threshold)
    evaluation.errors = _class_errors(examples, gold, predicted, decided, labels, kind, num_errors)
    return evaluation


def of_tags(words, gold, predicted, scheme, num_errors, **bootstrap):
    """Evaluates the columns of tagged sentences, as `read_tag_predictions` returns them.

    `scheme` is that of `tagging_scores`.
    """
    from bert_tf.tasks.token_classification.metrics import (
        sentence_errors,
        tagging_intervals,
        tagging_scores,
        word_labels,
    )
    from bert_tf.training.evaluation.confusion_matrix import confusion_matrix, confusion_text
    from bert_tf.training.evaluation.reports import draw_confusion

    labels, true, found = word_labels(gold, predicted)
    matrix = confusion_matrix(true, found, len(labels))
    errors = sentence_errors(gold, predicted)
    counts = np.array([len(missed) + len(wrong) for missed, wrong in errors])
    lines = []
    for row in np.argsort(-counts, kind="stable")[:num_errors]:
        if not counts[row]:
            break
        sides = (_named_spans(words[row], spans) for spans in errors[row])
        lines.append("\t".join([str(counts[row]), *sides, str(row + 1), " ".join(words[row])]))
    return Evaluation(
        f"{len(words)} sentences, {len(true)} words",
        tagging_scores(gold, predicted, scheme),
        tagging_intervals(gold, predicted, scheme=scheme, **bootstrap),
        ("f1",),
        [confusion_text(matrix, labels)],
        lambda directory: draw_confusion(
            true, found, labels, os.path.join(directory, "confusion.png")
        ),
        "errors, missed, wrong, sentence, text",
        lines,
    )


def of_answers(examples, answers, version_2, num_errors, **bootstrap):
    """Evaluates answers to the questions of a SQuAD file, by the rules of SQuAD 1.1 or 2.0."""
    from bert_tf.tasks.question_answering.metrics import (
        question_scores,
        squad_intervals,
        squad_scores,
    )

    exact, f1 = question_scores(examples, answers, version_2)
    lines = []
    for row in np.lexsort([exact, f1])[:num_errors]:
        if exact[row] == 1.0:
            break
        example = examples[row]
        gold = " | ".join(dict.fromkeys(answer.text for answer in example.answers)) or _NONE
        received = answers.get(example.id, "not answered") or _NONE
        cells = (f"{f1[row]:.4f}", gold, received, example.id, example.question)
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return Evaluation(
        f"{len(examples)} questions, {len(examples) - len(answers)} without a prediction",
        squad_scores(examples, answers, version_2),
        squad_intervals(examples, answers, version_2, **bootstrap),
        ("exact" if version_2 else "exact_match", "f1"),
        columns="F1, expected, predicted, id, question",
        errors=lines,
    )


def of_texts(predicted, references, tokenize, num_errors, **bootstrap):
    """Evaluates generated texts; `references` has the list of references of each."""
    from bert_tf.training.evaluation.generated_text import generated_text_rows
    from bert_tf.training.evaluation.scores import drawn_intervals

    scores = generated_text_rows(predicted, references, tokenize)
    chrf_of = generated_text_rows(predicted, references, tokenize, ["chrf"])
    chrf = np.array([chrf_of(np.array([row]))["chrf"] for row in range(len(predicted))])
    lines = []
    for row in np.argsort(chrf, kind="stable")[:num_errors]:
        if chrf[row] >= 100.0:
            break
        cells = (f"{chrf[row]:.2f}", " | ".join(references[row]), predicted[row], str(row + 1))
        lines.append("\t".join(" ".join(cell.split()) for cell in cells))
    return Evaluation(
        f"{len(predicted)} texts, {sum(map(len, references))} references",
        scores(np.arange(len(predicted))),
        drawn_intervals(scores, len(predicted), **bootstrap),
        columns="chrF, expected, predicted, text",
        errors=lines,
    )


def _class_errors(examples, gold, predicted, decided, labels, kind, num_errors):
    if kind == REGRESSION:
        wrongness = np.abs(gold - predicted[:, 0])
        received = [f"{value:.4f}" for value in predicted[:, 0]]
    elif kind == MULTI_LABEL:
        is_wrong = decided != gold
        wrongness = np.abs(gold - predicted).max(axis=1, where=is_wrong, initial=0.0)
        found = [list(itertools.compress(labels, row)) for row in decided]
        received = ["+".join(names) or _NONE for names in found]
    else:
        chosen = predicted[np.arange(len(decided)), decided]
        wrongness = np.where(decided != gold, chosen, 0.0)
        received = [labels[index] for index in decided]
    lines = []
    for row in np.argsort(-wrongness, kind="stable")[:num_errors]:
        if wrongness[row] <= 0.0:
            break
        example = examples[row]
        expected = example.label
        if isinstance(expected, tuple):
            expected = "+".join(expected) or _NONE
        text = " ||| ".join(filter(None, (example.text_a, example.text_b)))
        lines.append(f"{wrongness[row]:.4f}\t{expected}\t{received[row]}\t{row + 1}\t{text}")
    return lines


def _named_spans(words, spans):
    """Formats spans as `PER[Ada Lovelace] LOC[Paris]`."""
    named = (f"{span.label or ''}[{' '.join(words[span.start : span.end])}]" for span in spans)
    return " ".join(named) or "-"
