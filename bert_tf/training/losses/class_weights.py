"""The argument `class_weight` of `fit`.

Keras turns it into sample weights before the model receives the batch: the weight of `round(y)`, or
of `argmax(y)` if labels have several columns. That is wrong for labels of words and of positions,
and fails for a class that is not in the dictionary.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.errors import UserError, require, user_error
from bert_tf.training.losses.sparse_crossentropy import balanced_class_weights

BALANCED = "balanced"


def class_weights_by_id(
    class_weight: Mapping | Sequence[float] | str, num_classes: int, labels: list[str] | None = None
) -> dict[int, float] | str:
    """Returns the weight of each class, which is 1 if `class_weight` does not have the class.

    The keys of `class_weight` are class ids or, with `labels`, names of classes. A sequence has the
    weights in the order of the ids. The values must be finite and not negative. "balanced" is
    returned unchanged: `balanced_weights_by_id` needs the labels.

    Raises:
        UserError: If a class does not exist, or if a weight is negative or not a number.
    """
    if isinstance(class_weight, str) and class_weight == BALANCED:
        return class_weight
    if not isinstance(class_weight, Mapping):
        rule = f"must be a dictionary, {num_classes} numbers or {BALANCED!r}"
        is_valid = not isinstance(class_weight, str) and np.shape(class_weight) == (num_classes,)
        require(is_valid, rule, UserError, class_weight=class_weight)
        class_weight = dict(enumerate(class_weight))
    weights = dict.fromkeys(range(num_classes), 1.0)
    for key, weight in class_weight.items():
        index = labels.index(key) if labels is not None and key in labels else key
        if isinstance(index, str) or index not in weights:
            known = f"[0, {num_classes})" + ("" if labels is None else f", or names among {labels}")
            raise user_error("`class_weight`", f"have class ids in {known} as keys", repr(key))
        try:
            weights[index] = float(weight)
        except (TypeError, ValueError):
            weights[index] = math.nan
        if not 0.0 <= weights[index] < math.inf:
            expected = "have numbers of at least 0 as values"
            raise user_error("`class_weight`", expected, f"class_weight[{key!r}]={weight!r}")
    return weights


def count_class_ids(class_weight: Any) -> int:
    """Returns how many classes a dictionary of weights by class id is about.

    Raises:
        UserError: If it is anything else, for which the model would have to know its classes.
    """
    is_by_id = isinstance(class_weight, Mapping) and all(
        isinstance(key, numbers.Integral) for key in class_weight
    )
    rule = "must be {class id: weight}: this model has neither `labels` nor `num_classes`"
    require(is_by_id, rule, UserError, class_weight=class_weight)
    return max(class_weight, default=-1) + 1


def balanced_weights_by_id(y: Any, num_classes: int) -> dict[int, float]:
    """Returns the weights of the classes with which all count the same.

    Args:
        y: Class ids `[n]`, or one-hot rows `[n, C]`.
        num_classes: C.

    Raises:
        UserError: If `y` is not in memory.
        DataError: If an id is too large.
    """
    if not isinstance(y, np.ndarray):
        raise UserError(
            f"`class_weight={BALANCED!r}` needs all labels, an array `y`. Received: "
            f"y={type(y).__name__}. Pass `class_weight={{id: weight}}`."
        )
    ids = y.argmax(axis=-1) if y.ndim > 1 and y.shape[-1] > 1 else y
    return dict(enumerate(balanced_class_weights(ids.astype(np.int64), num_classes)))


def refuse_class_weight(class_weight: Any, reason: str) -> None:
    """Raises `UserError` for a model without classes to weight, with the reason."""
    expected = f"be left out here: {reason}"
    raise user_error("`class_weight`", expected, f"class_weight={class_weight!r}")
