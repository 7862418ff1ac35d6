"""A compiled loss on a part of a batch: what these rows contribute to the loss of the whole batch.

A batch may be divided among replicas or by gradient accumulation. Keras reduces the loss of each
part, and the reduced values do not add up. They do if each is multiplied by a share:

    sum                           Σ w·l          1
    sum_over_batch_size, mean     Σ w·l / n      the part's share of the rows
    mean_with_sample_weight       Σ w·l / Σ w    the part's share of the weights
"""

import contextlib

import keras
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, require

# For these names, Keras chooses one of three losses by the shapes.
_BY_SHAPES = ("crossentropy", "ce")
_IF_DIVIDED = "if a batch is divided (gradient accumulation, replicas)"


class BatchShare:
    """Which part of a batch the losses of a model receive, where batches are divided.

    Attributes:
        shares: The part's share of the denominators "rows" and "weights"; None outside of a step.
    """

    shares = None
    replicas = 1

    @contextlib.contextmanager
    def of(self, shares: dict[str, tf.Tensor], replicas: int):
        """Makes the losses in the block return what the part contributes to the batch's loss.

        Keras divides it by the number of replicas.
        """
        self.shares, self.replicas = shares, replicas
        try:
            yield
        finally:
            self.shares = None


class PartialLoss(keras.losses.Loss):
    """A loss that returns its part of the batch's loss inside of `BatchShare.of`."""

    def __init__(self, loss: keras.losses.Loss, batch: BatchShare):
        super().__init__(name=loss.name, reduction=loss.reduction, dtype=loss.dtype)
        self.loss = loss
        self.batch = batch

    def __call__(self, y_true, y_pred, sample_weight=None):
        value = super().__call__(y_true, y_pred, sample_weight)
        shares = self.batch.shares
        if shares is None or self.reduction == "sum":
            return value
        by_weights = self.reduction == "mean_with_sample_weight" and sample_weight is not None
        if by_weights and "weights" not in shares:
            raise UserError(
                "`sample_weight` must be one for all outputs if a batch is divided and the "
                "reduction is 'mean_with_sample_weight'. Received: sample weights of several "
                "outputs. Use reduction='sum_over_batch_size'."
            )
        share = shares["weights" if by_weights else "rows"] * self.batch.replicas
        return value * tf.cast(share, value.dtype)

    def call(self, y_true, y_pred):
        losses = self.loss.call(y_true, y_pred)
        if losses.shape.rank == 0:
            raise UserError(
                f"`loss` must return one value per example {_IF_DIVIDED}: Keras reduces them. "
                f"Received: loss={self.name!r}, which returns one number for all examples. Remove "
                "its mean or sum over the examples."
            )
        return losses


def partial_losses(loss, batch: BatchShare):
    """Returns the `loss` of `compile` with each loss in it as a `PartialLoss`.

    Raises `UserError` for a loss of which it is not known how it adds up over parts.
    """
    return keras.tree.map_structure(lambda one: _partial(one, batch), loss)


def _partial(loss, batch):
    if loss is None:
        return None
    rule = f"must say which cross-entropy it is {_IF_DIVIDED}"
    fix = "Pass for example keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
    is_valid = not isinstance(loss, str) or loss.lower() not in _BY_SHAPES
    require(is_valid, rule, UserError, fix, loss=loss)
    loss = keras_compat.loss_object(loss)
    if type(loss).__call__ is not keras.losses.Loss.__call__:
        raise UserError(
            f"`loss` must reduce its values as keras.losses.Loss does {_IF_DIVIDED}. Received: "
            f"{type(loss).__name__}, which overrides __call__. Override `call`, which returns one "
            "value per example."
        )
    if loss.reduction in (None, "none"):
        raise UserError(
            f"`loss` must be one number {_IF_DIVIDED}. Received: loss={loss.name!r} with "
            f"reduction={loss.reduction!r}. Use 'sum' or 'sum_over_batch_size'."
        )
    return PartialLoss(loss, batch)
