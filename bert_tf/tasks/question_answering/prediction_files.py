"""Reads files of predicted answers."""

import os
from collections.abc import Sequence

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import mapping_of, text
from bert_tf.errors import DataError
from bert_tf.tasks.question_answering.files import SquadExample


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
