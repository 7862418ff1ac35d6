"""Answers of models as values that JSON has."""

from typing import Any

import numpy as np


def as_json(value: Any) -> Any:
    """Returns named tuples as dictionaries, arrays as lists and NumPy's numbers as Python's.

    Example:
        >>> from bert_tf.base.json_values import as_json
        >>> from bert_tf.tasks.question_answering import Answer
        >>> as_json([Answer("Paris", 9, 14, np.float32(0.5))])
        [{'text': 'Paris', 'start': 9, 'end': 14, 'score': 0.5}]
    """
    if hasattr(value, "_asdict"):
        return {name: as_json(part) for name, part in value._asdict().items()}
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
