"""Losses over the labelled tokens of rows: of first pieces of words, `[CLS]` of sentences, words.

Glossary: `B` rows, `T` tokens of a row.
"""

import keras
import tensorflow as tf

from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.labels import IGNORED, are_labels_of_tokens, check_ids
from bert_tf.training.losses.sparse_crossentropy import class_loss


class TokenLoss:
    """A base of models whose `partial_loss` is their whole loss and counts their metrics.

    It must come before `TaskModel` in the list of base classes.

    Attributes:
        no_metrics: Why `compile` refuses metrics.
    """

    no_metrics = "the model has its own"

    @property
    def num_token_classes(self) -> int:
        """The number of classes of the labels of tokens."""
        raise NotImplementedError(f"{type(self).__name__} must have `num_token_classes`.")

    def read_labels(self, y, x):
        y = super().read_labels(y, x)
        if are_labels_of_tokens(y, x):
            check_ids(y, self.num_token_classes, "Labels of tokens", IGNORED)
        return y

    def compile(self, optimizer="adam", loss="auto", **kwargs):
        """Compiles as Keras does; the loss is over labelled tokens, its metrics are in the logs.

        Args:
            loss: A `bert_tf.training.SparseCrossentropy`, such as one with label smoothing. "auto"
                is cross-entropy.
            optimizer, **kwargs: See `TrainingModel.compile`, without metrics.

        Raises:
            UserError: For another loss, and for metrics.
        """
        for name in ("metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                received = f"{name}={kwargs[name]!r}"
                raise user_error(f"`{name}`", f"be left out: {self.no_metrics}", received)
        super().compile(optimizer=optimizer, loss=class_loss(loss), **kwargs)

    def loss_denominators(self, x, y, sample_weight):
        return {"words": tf.reduce_sum(token_weights(y, sample_weight))}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        totals = self.loss_denominators(x, y, sample_weight)
        return self.partial_loss(x, y, y_pred, sample_weight, training, totals)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()  # `partial_loss` counts


class OwnTokenLoss(TokenLoss):
    """The same for models that have no other loss: cross-entropy of one logit for each token.

    Attributes:
        loss_items: What the loss and the metrics are over, in the plural.
        accuracy: The metric of that name.
    """

    loss_items = "tokens"
    num_token_classes = 2
    accuracy: keras.metrics.Mean

    def compile(self, optimizer="adam", loss="auto", **kwargs):
        """Compiles as Keras does; the loss is cross-entropy of yes or no, with its metrics.

        Args:
            optimizer, **kwargs: See `TrainingModel.compile`, without metrics.
            loss: "auto"; there is no other.

        Raises:
            UserError: For another loss and for metrics.
        """
        rule = f"must be left out: {type(self).__name__} has its own, over {self.loss_items}"
        require(loss in ("auto", None), rule, UserError, loss=loss)
        super().compile(optimizer, **kwargs)

    def item_weights(self, x, y, sample_weight):
        """Returns what each token counts, float32 `[B, T]`: padding nothing, even with a label."""
        real = tf.cast(self.backbone.padding_mask_of(x), tf.float32)
        return real * token_weights(y, sample_weight)

    def loss_denominators(self, x, y, sample_weight):
        return {self.loss_items: tf.reduce_sum(self.item_weights(x, y, sample_weight))}

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        """Returns the mean over the items; `y` is 1 where the answer is yes."""
        weights = self.item_weights(x, y, sample_weight)  # [B, T]
        targets = tf.cast(tf.equal(y, 1), tf.float32)
        self.count_hits(tf.cast(y_pred > 0.0, tf.float32), targets, weights)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(targets, y_pred)  # [B, T]
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), totals[self.loss_items])

    def count_hits(self, found, targets, weights):
        """Updates the metrics with answers and targets, 0 and 1, all float32 `[B, T]`."""
        self.accuracy.update_state(tf.cast(tf.equal(found, targets), tf.float32), weights)


def token_weights(y: tf.Tensor, sample_weight: tf.Tensor | None) -> tf.Tensor:
    """Returns float32 `[B, T]`: 1 at tokens with a label, times the weight of the row.

    The labels `y`, `[B, T]`, are -100 at tokens without one; `sample_weight` is `[B]` or None.
    """
    weights = tf.cast(tf.not_equal(y, IGNORED), tf.float32)
    if sample_weight is not None:
        weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
    return weights
