"""SQuAD files, versions 1.1 and 2.0: questions, contexts and answers, read strictly.

Reference: Rajpurkar et al. 2016 (arXiv 1606.05250) and 2018 (arXiv 1806.03822);
google-research/bert run_squad.py, `read_squad_examples`.
"""

import dataclasses
import json
import logging
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from bert_tf.errors import DataError

_logger = logging.getLogger("bert_tf")
_SHOWN = 5  # of many alike, in a message

_LAYOUT = (
    'Expected SQuAD\'s layout: {"data": [{"paragraphs": [{"context": …, "qas": [{"id": …, '
    '"question": …, "answers": [{"text": …, "answer_start": …}]}]}]}]}'
)


class GoldAnswer(NamedTuple):
    """An answer as the data gives it.

    Attributes:
        text: A piece of the context.
        start: Where it starts in the context, in characters (code points).

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
        id: The question's id.
        question: The question.
        context: The text that is asked about.
        answers: Its answers; empty where there is none, or where the file does not tell.
        is_impossible: Whether the file says that the context has no answer (SQuAD 2.0).
        has_answers: Whether the file tells the answers at all.

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
        """The answer to learn, the first; None where there is none."""
        return self.answers[0] if self.answers and not self.is_impossible else None


def read_squad(path: str | os.PathLike) -> list[SquadExample]:
    """Reads a file of SQuAD 1.1 or 2.0.

    Args:
        path: The JSON file. A file to predict may leave the answers out.

    Returns:
        The questions, in the order of the file.

    Raises:
        DataError: If the file is missing, is not JSON, is not SQuAD (with the place in it), holds
            no question, or an id twice.

    Example:
        >>> examples = bert_tf.tasks.question_answering.read_squad("dev-v1.1.json")
        >>> examples[0].question, examples[0].answers[0].text
        ('To whom did the Virgin Mary allegedly appear in 1858 in Lourdes France?',
         'Saint Bernadette Soubirous')
    """
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except OSError as error:
        raise DataError(f"Expected a SQuAD file at {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected JSON in UTF-8. Received: {error}") from None
    reader = _Reader(path)
    examples = list(reader.examples(content))
    if not examples:
        raise DataError(f"{path} holds no questions. {_LAYOUT}")
    reader.require_unique(examples)
    return examples


def answer_span(context: str, answer: GoldAnswer) -> tuple[int, int] | None:
    """Where an answer stands in its context.

    Args:
        context: The text.
        answer: What the data says.

    Returns:
        The first character and the one behind the last; None where the context has another text at
        that place (runs of white space count as equal).

    Example:
        >>> answer_span("It is in Paris.", GoldAnswer("Paris", 9))
        (9, 14)
    """
    start, end = answer.start, answer.start + len(answer.text)
    words = answer.text.split()
    if not words or start < 0 or context[start:end].split() != words:
        return None
    return start, end


def report_left_out(
    left_out: Sequence[int],
    questions: Sequence[str],
    contexts: Sequence[str],
    answers: Sequence[GoldAnswer],
) -> None:
    """Says in the log how many questions training leaves out, and which (from the sixth on as
    debug messages).

    Args:
        left_out: The numbers of the questions whose answers are not in their contexts.
        questions: All questions.
        contexts: Their contexts.
        answers: Their answers.
    """
    if not left_out:
        return
    _logger.warning(
        "%d of %d questions are left out of training: their answers do not stand in their contexts "
        "where the data says.",
        len(left_out),
        len(questions),
    )
    for count, number in enumerate(left_out):
        text, start = answers[number]
        there = contexts[number][max(start, 0) : max(start, 0) + len(text)]
        _logger.log(
            logging.WARNING if count < _SHOWN else logging.DEBUG,
            "  %r: %r expected at character %d, there is %r",
            questions[number],
            text,
            start,
            there,
        )


class _Reader:
    """Walks a SQuAD file and says where it is not one."""

    def __init__(self, path):
        self.path = path

    def examples(self, content):
        for document, place in self._items(content, "data", ""):
            for paragraph, place_of_paragraph in self._items(document, "paragraphs", place):
                context = self._value(paragraph, "context", str, place_of_paragraph)
                questions = self._items(paragraph, "qas", place_of_paragraph)
                for question, place_of_question in questions:
                    yield self._example(question, context, place_of_question)

    def _example(self, question, context, place):
        has_answers = "answers" in question
        answers = []
        for answer, place_of_answer in self._items(question, "answers", place, has_answers):
            text = self._value(answer, "text", str, place_of_answer)
            start = self._value(answer, "answer_start", int, place_of_answer)
            answers.append(GoldAnswer(text, start))
        is_impossible = False
        if "is_impossible" in question:
            is_impossible = self._value(question, "is_impossible", bool, place)
        return SquadExample(
            id=self._value(question, "id", str, place),
            question=self._value(question, "question", str, place),
            context=context,
            answers=tuple(answers),
            is_impossible=is_impossible,
            has_answers=has_answers or is_impossible,
        )

    def _items(self, node, key, place, needed=True):
        """The dictionaries of the list `node[key]`, each with its place in the file."""
        if not needed:
            return
        for index, item in enumerate(self._value(node, key, list, place)):
            place_of_item = f"{place}.{key}[{index}]".lstrip(".")
            if not isinstance(item, dict):
                self._fail(place_of_item, "a dictionary", item)
            yield item, place_of_item

    def _value(self, node, key, kind, place) -> Any:
        place = f"{place}.{key}".lstrip(".")
        if not isinstance(node, dict):
            self._fail("the file", "a dictionary", node)
        value = node.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is int):
            self._fail(place, kind.__name__, value)
        return value

    def _fail(self, place, expected, value):
        received = "nothing" if value is None else f"{type(value).__name__} {value!r}"[:80]
        raise DataError(
            f"{self.path} is not a SQuAD file: {place} must be {expected}. Received: {received}. "
            f"{_LAYOUT}"
        )

    def require_unique(self, examples):
        seen, repeated = set(), []
        for example in examples:
            if example.id in seen:
                repeated.append(example.id)
            seen.add(example.id)
        if repeated:
            raise DataError(
                f"{self.path}: every question must have an id of its own, for predictions go by "
                f"id. Received: {len(repeated)} questions with an id that stands before them: "
                f"{', '.join(map(repr, repeated[:_SHOWN]))}"
            )
