"""The loss of classes that have an order, such as stars: a wrong class costs more if it is farther.

Glossary: `C` classes.
"""

from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy


@keras.saving.register_keras_serializable(package="bert_tf")
class OrdinalLogLoss(SparseCrossentropy):
    """-Σ_i |id - i|^α · log(1 - p_i) of logits `[..., C]` and class ids `[...]` in their order.

    The answers are classes and probabilities, as with cross-entropy. The loss of a row with a
    negative id is 0.

    Args:
        alpha: α; a larger one makes far classes cost more.
        class_weights: See `SparseCrossentropy`.

    Raises:
        UserError: If `alpha` is not positive.

    Example:
        >>> loss = bert_tf.training.OrdinalLogLoss(alpha=1.0)
        >>> logits = tf.constant([[0.0, 2.0, 0.0], [0.0, 0.0, 2.0]])  # one class off, and two
        >>> loss.call(tf.constant([0, 0]), logits).numpy().round(2)
        array([1.77, 3.21], dtype=float32)
        >>> names = ["1 star", "2 stars", "3 stars"]
        >>> model = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=names)
        >>> model.compile(bert_tf.training.AdamWeightDecay(2e-5), loss)

    Reference: Castagnos et al. 2022, "A Simple Log-based Loss Function for Ordinal Text
    Classification" (COLING), equation 7, whose best α is 1.5.
    """

    def __init__(
        self,
        alpha: float = 1.5,
        class_weights: Sequence[float] | None = None,
        name: str = "ordinal_log_loss",
        **kwargs,
    ):
        super().__init__(class_weights=class_weights, name=name, **kwargs)
        require(alpha > 0, "must be positive", UserError, alpha=alpha)
        self.alpha = alpha

    def row_losses(self, logits, ids):
        count = tf.shape(logits)[-1]
        # log(1 - p) from the logits of the other classes: p may round to 1.
        is_own = tf.eye(count, dtype=tf.bool)  # [C, C]
        others = tf.where(is_own, -np.inf, logits[..., tf.newaxis, :])  # [..., C, C]
        log_rest = tf.reduce_logsumexp(others, -1) - tf.reduce_logsumexp(logits, -1, keepdims=True)
        steps = tf.abs(tf.cast(ids[..., tf.newaxis] - tf.range(count), tf.float32))  # [..., C]
        # Rounding can make log(1 - p) larger than 0.
        return -tf.reduce_sum(tf.pow(steps, self.alpha) * tf.minimum(log_rest, 0.0), axis=-1)

    def get_config(self):
        config = {**super().get_config(), "alpha": self.alpha}
        del config["label_smoothing"], config["focal_gamma"]
        return config
