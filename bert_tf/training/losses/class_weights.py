"""The argument `class_weight` of `fit`.

Keras turns it into sample weights before the model receives the batch: the weight of `round(y)`, or
of `argmax(y)` if labels have several columns. That is wrong for labels of words and of positions,
and fails for a class that is not in the dictionary.
"""

import math
from collections.abc import Mapping

from bert_tf.errors import UserError


def class_weights_by_id(
    class_weight: Mapping, num_classes: int, labels: list[str] | None = None
) -> dict[int, float]:
    """Returns the weight of each class, which is 1 if `class_weight` does not have the class.

    The keys of `class_weight` are class ids or, with `labels`, names of classes. The values must be
    finite and not negative.

    Raises:
        UserError: If a class does not exist, or if a weight is negative or not a number.
    """
    weights = dict.fromkeys(range(num_classes), 1.0)
    for key, weight in class_weight.items():
        index = labels.index(key) if labels is not None and key in labels else key
        if isinstance(index, str) or index not in weights:
            known = f"[0, {num_classes})" + ("" if labels is None else f", or names among {labels}")
            raise UserError(
                f"`class_weight` must have class ids in {known} as keys. Received: {key!r}"
            )
        try:
            weights[index] = float(weight)
        except (TypeError, ValueError):
            weights[index] = math.nan
        if not 0.0 <= weights[index] < math.inf:
            raise UserError(
                "`class_weight` must have numbers of at least 0 as values. "
                f"Received: class_weight[{key!r}]={weight!r}"
            )
    return weights


def refuse_class_weight(class_weight: Mapping, reason: str) -> None:
    """Raises `UserError` for a model without classes to weight, with the reason."""
    raise UserError(
        f"`class_weight` must be left out here: {reason}. Received: class_weight={class_weight!r}"
    )
