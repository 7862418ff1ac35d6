"""A compiled loss on a part of a batch: what these rows add to the value of the whole batch.

Keras reduces the loss of the rows it is given. Of a batch that is cut up, over replicas or by
gradient accumulation, the reduced values do not add up; times the share of their part they do:

    sum                                    Σ w·l, of all rows the sum of the parts: 1
    sum_over_batch_size, mean              Σ w·l / n: the part's share of the rows
    mean_with_sample_weight                Σ w·l / Σ w: the part's share of the weights
"""

import contextlib

import keras
import tensorflow as tf

from bert_tf import keras_compat
from bert_tf.errors import UserError

# Keras chooses among three losses by the shapes it sees.
_BY_SHAPES = ("crossentropy", "ce")


class ShareOfBatch:
    """What the losses of a model know about the part that they are given.

    Args:
        is_cut_up: Whether batches are cut up.

    Attributes:
        shares: By the name of a denominator, "rows" or "weights", which share of the batch's the
            part has; None outside of a step.
    """

    def __init__(self, is_cut_up: bool = False):
        self.is_cut_up = is_cut_up
        self.shares = None

    @contextlib.contextmanager
    def of(self, shares: dict[str, tf.Tensor]):
        """Within it the losses give what the part adds to the loss of the batch."""
        self.shares = shares
        try:
            yield
        finally:
            self.shares = None


class PartialLoss(keras.losses.Loss):
    """A loss that gives its part of the batch's loss within `ShareOfBatch.of`."""

    def __init__(self, loss: keras.losses.Loss, batch: ShareOfBatch):
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
                "With reduction='mean_with_sample_weight' one `sample_weight` for all outputs must "
                "be given where a batch is cut up. Received: sample weights of several outputs. "
                "Use reduction='sum_over_batch_size'."
            )
        return value * tf.cast(shares["weights" if by_weights else "rows"], value.dtype)

    def call(self, y_true, y_pred):
        losses = self.loss.call(y_true, y_pred)
        if self.batch.is_cut_up and losses.shape.rank == 0:
            raise UserError(
                "`loss` must give a value for every example where a batch is cut up (gradient "
                f"accumulation, replicas): Keras reduces them. Received: loss={self.name!r}, which "
                "gives one number for all. Leave its mean or sum over the examples out."
            )
        return losses


def partial_losses(loss, batch: ShareOfBatch):
    """The `loss` that `compile` was given, every loss in it as a `PartialLoss`.

    Args:
        loss: A loss as Keras takes it, or a dictionary or list of them.
        batch: What the losses need to know about their part.

    Raises:
        UserError: If it cannot be known how a loss adds up over parts.
    """
    return keras.tree.map_structure(lambda one: _partial(one, batch), loss)


def _partial(loss, batch):
    if loss is None:
        return None
    if isinstance(loss, str) and loss.lower() in _BY_SHAPES:
        raise UserError(
            "`loss` must say which cross-entropy it is where a batch is cut up. "
            f"Received: loss={loss!r}. Pass keras.losses.SparseCategoricalCrossentropy("
            "from_logits=True) or the one that fits."
        )
    loss = keras_compat.loss_object(loss)
    if type(loss).__call__ is not keras.losses.Loss.__call__:
        raise UserError(
            "`loss` must reduce its values as keras.losses.Loss does where a batch is cut up "
            f"(gradient accumulation, replicas). Received: {type(loss).__name__}, which overrides "
            "__call__. Override `call`, with a value for every example."
        )
    if loss.reduction in (None, "none"):
        raise UserError(
            "`loss` must be one number where a batch is cut up (gradient accumulation, replicas). "
            f"Received: loss={loss.name!r} with reduction={loss.reduction!r}. Use 'sum', or "
            "'sum_over_batch_size'."
        )
    return PartialLoss(loss, batch)
