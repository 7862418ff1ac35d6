"""What a text classifier answers as the columns of a table."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bert_tf.base.optional_packages import require_package
from bert_tf.config import MULTI_LABEL, REGRESSION
from bert_tf.tasks.text_classification.preprocessor import Classification

if TYPE_CHECKING:
    import pandas


def answer_columns(
    answers: Sequence[Classification], names: Sequence[str], problem_type: str
) -> dict[str, list[Any]]:
    """Returns answers as columns with a row for each text.

    Args:
        answers: What `classify` returned for n texts.
        names: The names of the classes or numbers, in the order of their ids.
        problem_type: See `BertTextClassifier`.

    Returns:
        `predicted_label` and `probability_<name>` for every class; `predicted_labels`, lists, where
        a text may have several. For a regression `predicted_value`, or `predicted_<name>` for every
        one of several numbers.

    Example:
        >>> from bert_tf.tasks.text_classification import Classification
        >>> answers = [Classification(("good",), {"bad": 0.25, "good": 0.75})]
        >>> answer_columns(answers, ["bad", "good"], "single_label_classification")
        {'predicted_label': ['good'], 'probability_bad': [0.25], 'probability_good': [0.75]}
    """
    scores = {name: [answer.scores[name] for answer in answers] for name in names}
    if problem_type == REGRESSION:
        if len(names) == 1:
            return {"predicted_value": scores[names[0]]}
        return {f"predicted_{name}": values for name, values in scores.items()}
    if problem_type == MULTI_LABEL:
        labels = {"predicted_labels": [list(answer.labels) for answer in answers]}
    else:
        labels = {"predicted_label": [answer.label for answer in answers]}
    return labels | {f"probability_{name}": values for name, values in scores.items()}


def frame_of(columns: dict[str, list[Any]], texts: Any) -> "pandas.DataFrame":
    """Returns columns as a `pandas.DataFrame` with the index of the texts, if they have one.

    Raises:
        UserError: If pandas is not installed.
    """
    pandas = require_package("pandas", "`as_frame`")
    first = texts[0] if isinstance(texts, tuple) and texts else texts  # of two columns
    index = getattr(first, "index", None)
    return pandas.DataFrame(columns, index if isinstance(index, pandas.Index) else None)
