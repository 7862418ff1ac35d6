"""Classes whose names are numbers, as the stars of a review: an integer may be a name or an id."""

from collections.abc import Sequence

from bert_tf.errors import DataError

_TRUTH_VALUES = {"false": 0, "true": 1}


def refuse_unclear_numbers(labels: Sequence[str] | None) -> None:
    """Refuses labels that are numbers, unless every name that is a number is the id of its class.

    Numbers are clear for the names `["0", "1"]`, but not for `["1", "2"]`.

    Raises:
        DataError: If a number may be a name or an id.
    """
    if any(_number(label) not in (None, place) for place, label in enumerate(labels or ())):
        raise DataError(
            "Labels must be strings if names of classes are numbers other than their ids: "
            f"{list(labels)}. Received: numbers. Pass `[str(label) for label in y]`."
        )


def _number(label):
    """Returns the integer that a name is, or None."""
    try:
        value = float(label)
    except ValueError:
        return _TRUTH_VALUES.get(label.lower())
    return int(value) if value.is_integer() else None
