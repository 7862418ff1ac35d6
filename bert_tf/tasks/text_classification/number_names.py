"""Classes whose names are numbers, as the stars of a review: an integer may be a name or an id."""

from collections.abc import Sequence

from bert_tf.errors import DataError

_TRUTH_VALUES = {"false": 0, "true": 1}


def refuse_unclear_numbers(labels: Sequence[str] | None) -> None:
    """For labels that are given as numbers: a number that is a class's name must be its id.

    So it is for the names `["0", "1"]`, and not for `["1", "2"]`.

    Raises:
        DataError: If numbers cannot be told apart from names.
    """
    if any(_number(label) not in (None, place) for place, label in enumerate(labels or ())):
        raise DataError(
            f"Labels must be names, as strings, where the names are numbers other than their ids: "
            f"{list(labels)}. Received: numbers. Pass `[str(label) for label in y]`."
        )


def _number(label):
    """Returns the integer that a name is, or None."""
    try:
        value = float(label)
    except ValueError:
        return _TRUTH_VALUES.get(label.lower())
    return int(value) if value.is_integer() else None
