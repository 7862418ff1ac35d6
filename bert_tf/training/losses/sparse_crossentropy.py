"""Cross-entropy on class ids with label smoothing, focal loss and class weights.

Keras turns the argument `class_weight` of `fit` into sample weights before the model receives the
batch: the weight of `round(y)`, or of `argmax(y)` if labels have several columns. That is wrong for
labels of words and of positions, and fails for a class that is not in the dictionary.
"""

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import PADDING_LOGIT
from bert_tf.errors import DataError, UserError, require, user_error

SMALLEST_REST = 1e-7  # (1 - p)^γ has no finite slope at 1 - p = 0


@keras.saving.register_keras_serializable(package="bert_tf")
class SparseCrossentropy(keras.losses.Loss):
    """Cross-entropy of logits `[..., C]` on class ids `[...]`, for texts and for tokens.

    With targets t (one-hot, smoothed) and probabilities p, the loss of a row is
    `w[id] · Σ -t · (1 - p)^γ · log p`. The loss of a row with a negative id is 0. C may differ from
    batch to batch. Classes with the logit `PADDING_LOGIT` do not count.

    Args:
        label_smoothing: The fraction of the target that is distributed evenly over all classes
            (Szegedy et al. 2016, arXiv 1512.00567, section 7).
        focal_gamma: γ of the focal loss (Lin et al. 2017, arXiv 1708.02002); 0 is cross-entropy.
        class_weights: w, the factors of the classes, as `balanced_class_weights` returns them. None
            means 1 for all.

    Raises:
        UserError: If `label_smoothing` is not in [0, 1) or `focal_gamma` is negative.

    Example:
        >>> loss = bert_tf.training.SparseCrossentropy(
        ...     label_smoothing=0.1, class_weights=[1.0, 4.0]
        ... )
        >>> logits = tf.constant([[2.0, 0.0], [0.0, 2.0]])
        >>> round(float(loss(tf.constant([0, 1]), logits)), 4)
        0.5673
    """

    def __init__(
        self,
        label_smoothing: float = 0.0,
        focal_gamma: float = 0.0,
        class_weights: Sequence[float] | None = None,
        name: str = "sparse_crossentropy",
        **kwargs,
    ):
        super().__init__(name=name, **kwargs)
        rule = "must be in [0, 1) and `focal_gamma` at least 0"
        is_valid = 0.0 <= label_smoothing < 1.0 and focal_gamma >= 0.0
        require(is_valid, rule, UserError, label_smoothing=label_smoothing, focal_gamma=focal_gamma)
        self.label_smoothing = label_smoothing
        self.focal_gamma = focal_gamma
        self.class_weights = None if class_weights is None else [float(w) for w in class_weights]

    def call(self, y_true, y_pred):
        num_classes = y_pred.shape[-1]
        rule = f"must have one weight for each of the {num_classes} classes"
        is_valid = self.class_weights is None or len(self.class_weights) == num_classes
        require(is_valid, rule, UserError, class_weights=self.class_weights)
        logits = tf.cast(y_pred, tf.float32)
        ids = tf.reshape(tf.cast(y_true, tf.int32), tf.shape(logits)[:-1])  # [...]
        losses = self.row_losses(logits, ids) * tf.cast(ids >= 0, tf.float32)  # [...]
        if self.class_weights is not None:
            losses *= tf.gather(tf.constant(self.class_weights), tf.maximum(ids, 0))
        return losses

    def row_losses(self, logits: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
        """Returns the losses `[...]` of rows without class weights; those of negative ids are any.

        `logits` are float32 `[..., C]`, `ids` int32 `[...]`.
        """
        log_p = tf.nn.log_softmax(logits)  # [..., C]
        targets = tf.one_hot(ids, tf.shape(log_p)[-1], 1.0 - self.label_smoothing)
        if self.label_smoothing:
            classes = tf.cast(logits > PADDING_LOGIT / 2, tf.float32)
            targets += self.label_smoothing * classes / tf.reduce_sum(classes, -1, keepdims=True)
        terms = -targets * log_p
        if self.focal_gamma:
            rest = tf.maximum(-tf.math.expm1(log_p), SMALLEST_REST)  # 1 - p
            terms *= tf.pow(rest, self.focal_gamma)
        return tf.reduce_sum(terms, axis=-1)

    def get_config(self):
        names = ("label_smoothing", "focal_gamma", "class_weights")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def takes_class_ids(loss: Any) -> bool:
    """Returns whether a compiled loss takes class ids; so does the default."""
    sparse = (keras.losses.SparseCategoricalCrossentropy, SparseCrossentropy)
    is_sparse = loss is None or isinstance(loss, sparse)
    return is_sparse or str(getattr(loss, "__name__", loss)).startswith("sparse_")


def class_loss(loss) -> SparseCrossentropy | None:
    """Checks the argument `loss` of `compile` for a model whose loss is cross-entropy.

    "auto" and None mean plain cross-entropy, for which None is returned. Other losses are refused.
    Raises `UserError` if it is another loss, or if its `reduction` is not a mean.
    """
    if loss is None or loss == "auto":
        return None
    if not isinstance(loss, SparseCrossentropy):
        raise UserError(
            "`loss` must be a bert_tf.training.SparseCrossentropy(label_smoothing, focal_gamma, "
            f"class_weights) or 'auto'. Received: loss={loss!r}"
        )
    require_mean(loss)
    return loss


def require_mean(loss: SparseCrossentropy) -> None:
    """Raises `UserError` if the reduction of `loss` is not a mean, which its model computes."""
    if loss.reduction in ("sum", "none", None):
        received = f"reduction={loss.reduction!r}. Do not pass `reduction`."
        raise user_error("`loss`", "be a mean here (over words or pairs of texts)", received)


def refuse_class_weights(loss, reason: str) -> None:
    """Raises `UserError` if `loss` has class weights; `reason` says why it must have none."""
    weights = getattr(loss, "class_weights", None)
    require(weights is None, f"must be None: {reason}", UserError, class_weights=weights)


def balanced_class_weights(class_ids: np.ndarray, num_classes: int) -> list[float]:
    """Returns weights with which all classes count the same: n / (C · number of examples).

    A class without examples has the weight 0.

    Args:
        class_ids: The class ids, of any shape. Negative ids are ignored.
        num_classes: C, the number of classes.

    Raises:
        DataError: If there are no ids, or if an id is too large.

    Example:
        >>> weights = bert_tf.training.balanced_class_weights(np.array([0, 0, 0, 1]), num_classes=2)
        >>> [round(weight, 2) for weight in weights]
        [0.67, 2.0]
    """
    ids = np.asarray(class_ids).reshape(-1)
    ids = ids[ids >= 0]
    if not ids.size or ids.max() >= num_classes:
        received = f"{ids.size} ids, the largest one is {ids.max() if ids.size else None}"
        raise user_error("`class_ids`", f"have ids below {num_classes}", received, DataError)
    counts = np.bincount(ids, minlength=num_classes)
    return [float(ids.size / (num_classes * count)) if count else 0.0 for count in counts]


BALANCED = "balanced"


def class_weights_by_id(
    class_weight: Mapping | Sequence[float] | str, num_classes: int, labels: list[str] | None = None
) -> dict[int, float] | str:
    """Returns the weight of each class, which is 1 if `class_weight` does not have the class.

    The keys of `class_weight` are class ids or, with `labels`, names of classes. A sequence has the
    weights in the order of the ids. The values must be finite and not negative. "balanced" is
    returned unchanged: `balanced_weights_by_id` needs the labels. Raises `UserError` if a class
    does not exist, or if a weight is negative or not a number.
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

    Raises `UserError` for anything else: the model would have to know its classes.
    """
    is_by_id = isinstance(class_weight, Mapping) and all(
        isinstance(key, numbers.Integral) for key in class_weight
    )
    rule = "must be {class id: weight}: this model has neither `labels` nor `num_classes`"
    require(is_by_id, rule, UserError, class_weight=class_weight)
    return max(class_weight, default=-1) + 1


def balanced_weights_by_id(y: Any, num_classes: int) -> dict[int, float]:
    """Returns `balanced_class_weights` of class ids `[n]`, or one-hot rows `[n, C]`, by the id.

    Raises `UserError` if `y` is not in memory, and `DataError` if an id is too large.
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
