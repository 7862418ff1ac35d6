"""Predicted answers in a file, put beside the questions that they belong to."""

import json
import os
from collections.abc import Sequence

from bert_tf.errors import DataError
from bert_tf.tasks.question_answering.files import SquadExample

_SHOWN = 3  # of many alike, in a message


def read_answers(path: str | os.PathLike, examples: Sequence[SquadExample]) -> dict[str, str]:
    """Reads `predictions.json`, as tools/run_squad.py and the original's write it.

    Args:
        path: A JSON dictionary from question ids to texts; "" is no answer.
        examples: The questions. One without a prediction is left out of the result.

    Raises:
        DataError: If the file is missing or not of that form, names an id twice, or one that no
            question has.

    Example:
        >>> import pathlib
        >>> from bert_tf.tasks.question_answering import GoldAnswer, SquadExample
        >>> size = pathlib.Path("predictions.json").write_text('{"q1": "Paris"}')
        >>> example = SquadExample("q1", "Where?", "It is in Paris.", (GoldAnswer("Paris", 9),))
        >>> bert_tf.tasks.question_answering.read_answers("predictions.json", [example])
        {'q1': 'Paris'}
    """
    try:
        with open(path, encoding="utf-8") as file:
            pairs = json.load(file, object_pairs_hook=_Pairs)
    except OSError as error:
        raise DataError(f"Expected predictions at {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected JSON in UTF-8. Received: {error}") from None
    if not isinstance(pairs, _Pairs) or not all(isinstance(text, str) for _, text in pairs):
        raise DataError(
            f"{path}: expected a dictionary from ids to texts, as predictions.json. "
            f"Received: {str(pairs)[:80]}"
        )
    answers = dict(pairs)
    if len(answers) < len(pairs):
        ids = [id for id, _ in pairs]
        repeated = sorted({id for id in ids if ids.count(id) > 1})
        raise DataError(f"{path}: expected every id once. Received again: {repeated[:_SHOWN]}")
    unknown = sorted(set(answers) - {example.id for example in examples})
    if unknown:
        raise DataError(
            f"{path}: expected ids of the questions. Received: {len(unknown)} that none has, "
            f"{unknown[:_SHOWN]}. Are the predictions those of another file?"
        )
    return answers


class _Pairs(list):
    """The pairs of a JSON dictionary: it may name a key twice."""
