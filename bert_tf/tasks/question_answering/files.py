"""Reads SQuAD files, versions 1.1 and 2.0: questions, contexts and answers.

Reference: Rajpurkar et al. 2016 (arXiv 1606.05250) and 2018 (arXiv 1806.03822);
google-research/bert run_squad.py, `read_squad_examples`.
"""

import collections
import dataclasses
import json
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

from bert_tf.base.file_errors import data_error
from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import (
    FLAG,
    Kind,
    check,
    is_integer,
    list_of,
    mapping_of,
    may_lack,
    object_of,
    text,
)
from bert_tf.base.regular_files import open_input
from bert_tf.errors import DataError

_logger = logging.getLogger("bert_tf")
_SHOWN = 5  # examples in a message

_TEXT = Kind("a string", lambda value: isinstance(value, str))
_ANSWER = object_of({"text": _TEXT, "answer_start": Kind("an integer", is_integer)})
_QUESTION = object_of(
    {
        "id": _TEXT,
        "question": _TEXT,
        "answers": may_lack(list_of(_ANSWER)),
        "is_impossible": may_lack(FLAG),
    }
)
_PARAGRAPH = object_of({"context": _TEXT, "qas": list_of(_QUESTION)})
_SQUAD = object_of({"data": list_of(object_of({"paragraphs": list_of(_PARAGRAPH)}))})


class GoldAnswer(NamedTuple):
    """An answer in the data.

    Attributes:
        text, start: A part of the context, and where it starts there, in characters (code points).

    Example:
        >>> answer, context = GoldAnswer("Paris", 9), "It is in Paris."
        >>> context[answer.start :].startswith(answer.text)
        True
    """

    text: str
    start: int


@dataclasses.dataclass(frozen=True)
class SquadExample:
    """One question about one context.

    Attributes:
        id, question, context: The question's id, the question, and the text that it is about.
        answers: The answers; empty if there are none or if they are not known.
        is_impossible: Whether the context has no answer (SQuAD 2.0).
        has_answers: Whether the answers are known.

    Example:
        >>> example = SquadExample("q1", "Where?", "It is in Paris.", (GoldAnswer("Paris", 9),))
        >>> example.is_impossible
        False
    """

    id: str
    question: str
    context: str
    answers: tuple[GoldAnswer, ...] = ()
    is_impossible: bool = False
    has_answers: bool = True

    def training_answer(self) -> GoldAnswer | None:
        """Returns the first answer, which is used for training, or None."""
        return self.answers[0] if self.answers and not self.is_impossible else None


def read_squad(path: str | os.PathLike) -> list[SquadExample]:
    """Reads a file of SQuAD 1.1 or 2.0.

    Args:
        path: The JSON file. It need not have answers.

    Returns:
        The questions, in the order of the file.

    Raises:
        DataError: If the file is missing, is not JSON or not SQuAD, has no questions, or has an id
            twice. The message names the place in the file.

    Example:
        >>> examples = bert_tf.tasks.question_answering.read_squad("dev-v1.1.json")
        >>> examples[0].question, examples[0].answers[0].text
        ('To whom did the Virgin Mary allegedly appear in 1858 in Lourdes France?',
         'Saint Bernadette Soubirous')
    """
    try:
        with open_input(path, "r", encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise DataError(f"{path} must be a SQuAD file. Received: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} must be JSON in UTF-8. Received: {error}") from None
    check(content, _SQUAD, f"the SQuAD file {path}", DataError)
    examples = [
        SquadExample(
            question["id"],
            question["question"],
            paragraph["context"],
            tuple(GoldAnswer(a["text"], a["answer_start"]) for a in question.get("answers", ())),
            question.get("is_impossible", False),
            has_answers="answers" in question or question.get("is_impossible", False),
        )
        for document in content["data"]
        for paragraph in document["paragraphs"]
        for question in paragraph["qas"]
    ]
    if not examples:
        raise DataError(f"{path} must have questions. Received: none")
    counts = collections.Counter(example.id for example in examples)
    repeated = [id for id, count in counts.items() if count > 1]
    if repeated:
        expected = "have a different id for each question, because predictions are stored by id"
        raise data_error(path, expected, f"{len(repeated)} ids more than once: {repeated[:_SHOWN]}")
    return examples


def answer_span(context: str, answer: GoldAnswer) -> tuple[int, int] | None:
    """Returns the first character of an answer in its context and the one after the last.

    None if the context has another text there. All runs of white space are equal.

    Example:
        >>> answer_span("It is in Paris.", GoldAnswer("Paris", 9))
        (9, 14)
    """
    start, end = answer.start, answer.start + len(answer.text)
    words = answer.text.split()
    is_there = words and start >= 0 and context[start:end].split() == words
    return (start, end) if is_there else None


def report_left_out(
    left_out: Sequence[int],
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[GoldAnswer],
) -> None:
    """Logs the questions that training skips, by their numbers; from the sixth on for debugging."""
    if not left_out:
        return
    _logger.warning(
        f"{len(left_out)} of {len(questions)} questions are left out of training: their answers "
        "are not at the given places of their contexts."
    )
    for count, number in enumerate(left_out):
        words, start = answers[number]
        there = contexts[number][max(start, 0) : max(start, 0) + len(words)]
        level = logging.WARNING if count < _SHOWN else logging.DEBUG
        message = "  %r: %r must be at character %d. Received: %r"
        _logger.log(level, message, questions[number], words, start, there)


def read_answers(path: str | os.PathLike, examples: Sequence[SquadExample]) -> dict[str, str]:
    """Reads `predictions.json`, as tools/run_squad.py and the original write it.

    Args:
        path: A JSON object from question ids to texts; "" means no answer.
        examples: The questions. They need not all have a prediction.

    Returns:
        The texts by question id.

    Raises:
        DataError: If the file is missing, not such an object, has an id twice, or has an id that is
            not in `examples`.

    Example:
        >>> import pathlib
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> size = pathlib.Path("predictions.json").write_text('{"q1": "Paris"}')
        >>> example = SquadExample("q1", "Where?", "It is in Paris.", (GoldAnswer("Paris", 9),))
        >>> bert_tf.tasks.question_answering.read_answers("predictions.json", [example])
        {'q1': 'Paris'}
    """
    answers = read_json(path, mapping_of(text()), DataError)
    unknown = sorted(set(answers) - {example.id for example in examples})
    if unknown:
        raise DataError(
            f"{path} must have ids of the questions. Received: {len(unknown)} unknown ids, "
            f"{unknown[:3]}. Check that the predictions are for these questions."
        )
    return answers
