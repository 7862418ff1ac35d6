"""Keras's `class_weight` of `fit`: which models have classes that it can weight.

Keras makes a sample weight of it before the model sees the batch: the weight of `round(y)`, or of
`argmax(y)` where labels have several columns. That is wrong for labels of words and of positions,
and its lookup fails for a class that the dictionary leaves out.
"""

from collections.abc import Mapping

from bert_tf.errors import UserError


def class_weights_by_id(
    class_weight: Mapping, num_classes: int, labels: list[str] | None = None
) -> dict[int, float]:
    """A weight for every class; 1 for those that are not named.

    Args:
        class_weight: From class ids, or names among `labels`, to weights.
        num_classes: Number of classes.
        labels: Their names, if they have some.

    Raises:
        UserError: If it names a class that there is not, or a weight is negative or no number.
    """
    weights = dict.fromkeys(range(num_classes), 1.0)
    for key, weight in class_weight.items():
        index = labels.index(key) if labels is not None and key in labels else key
        if isinstance(index, str) or index not in weights:
            known = f"[0, {num_classes})" + ("" if labels is None else f", or names among {labels}")
            raise UserError(
                f"`class_weight` must have class ids in {known} as keys. Received: {key!r}"
            )
        if not _is_weight(weight):
            raise UserError(
                "`class_weight` must have numbers of at least 0 as values. "
                f"Received: class_weight[{key!r}]={weight!r}"
            )
        weights[int(index)] = float(weight)
    return weights


def refuse_class_weight(class_weight: Mapping, reason: str) -> None:
    """Raises `UserError`.

    Args:
        class_weight: What `fit` was given.
        reason: Why the model has no use for it, and what to do instead.
    """
    raise UserError(
        f"`class_weight` must be left out here: {reason}. Received: class_weight={class_weight!r}"
    )


def _is_weight(value) -> bool:
    try:
        return 0.0 <= float(value) < float("inf")
    except (TypeError, ValueError):
        return False
