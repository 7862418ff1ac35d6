"""Classes whose names are numbers, as the stars of a review: an integer may be a name or an id."""

from collections.abc import Sequence

from bert_tf.errors import DataError

_TRUTH_VALUES = {"false": 0, "true": 1}


def numbers_are_unclear(labels: Sequence[str] | None) -> bool:
    """Whether a number that is a class's name is not that class's id.

    Args:
        labels: The names in the order of their ids, or None.

    Example:
        >>> numbers_are_unclear(["0", "1"]), numbers_are_unclear(["1", "2"])
        (False, True)
    """
    return any(_number(label) not in (None, place) for place, label in enumerate(labels or ()))


def refuse_unclear_numbers(labels: Sequence[str] | None) -> None:
    """Raises `DataError` if numbers cannot be told apart from names; for labels given as numbers.

    Args:
        labels: As in `numbers_are_unclear`.
    """
    if numbers_are_unclear(labels):
        raise DataError(
            f"Labels must be names, as strings, where the names are numbers other than their ids: "
            f"{list(labels)}. Received: numbers. Pass `[str(label) for label in y]`."
        )


def _number(label):
    """The integer that a name is, or None."""
    try:
        value = float(label)
    except ValueError:
        return _TRUTH_VALUES.get(label.lower())
    return int(value) if value.is_integer() else None
