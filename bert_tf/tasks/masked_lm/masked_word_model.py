"""What the models that predict masked words share: logits, loss and metrics."""

import keras
import tensorflow as tf

from bert_tf.inputs.token_inputs import depending_on, row_checks
from bert_tf.ops.native import needs_static_shapes
from bert_tf.training.evaluation.metrics import Perplexity
from bert_tf.training.losses.sparse_crossentropy import class_loss
from bert_tf.training.training_model import TrainingModel

# Added to the sum of the weights, so that a batch without masks gives zero, not NaN.
WEIGHT_SUM_EPSILON = 1e-5  # google-research/bert run_pretraining.py


class MaskedWordModel(TrainingModel):
    """A model with a `backbone` and a `masked_lm_head`.

    The loss of the words is Σwℓ / (Σw + 1e-5), ℓ being their cross-entropy or what `compile` was
    given; the metrics `masked_lm_loss`, `masked_lm_accuracy` and `perplexity` are always those of
    the cross-entropy.

    Reference: google-research/bert run_pretraining.py, `get_masked_lm_output`.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.masked_lm_loss = keras.metrics.Mean(name="masked_lm_loss")
        self.masked_lm_accuracy = keras.metrics.Mean(name="masked_lm_accuracy")
        self.perplexity = Perplexity(name="perplexity")

    def compile(self, optimizer="adam", loss="auto", **kwargs):
        """Compiles as Keras does; the loss of the words defaults to cross-entropy.

        Args:
            loss: A `bert_tf.training.SparseCrossentropy`, for label smoothing or focus; or "auto".
            optimizer, **kwargs: See `TrainingModel.compile`.

        Raises:
            UserError: For another loss.
        """
        super().compile(optimizer=optimizer, loss=class_loss(loss), **kwargs)

    def word_logits(
        self, outputs, positions=None, weights=None, keeps_padding: bool = False
    ) -> tf.Tensor:
        """Returns logits over the vocabulary, float32 `[B, P, V]`, of the backbone's outputs.

        Without positions, int `[B, P]`, they are those of all T tokens. With weights, float `[B,
        P]`, they are `[M, V]`: only the M places with a weight above zero are computed. For
        `keeps_padding` see `MaskedLMHead`; `word_loss` takes such logits.
        """
        states = outputs["sequence_output"]  # [B, T, H]
        batch, length = tf.shape(states)[0], tf.shape(states)[1]
        if positions is None:
            places = tf.reshape(tf.range(batch * length), [batch, length])
        else:
            positions = tf.cast(positions, tf.int32)
            checks = row_checks("masked_positions", positions, length, "the number of columns")
            positions = depending_on(checks, {"positions": positions})["positions"]
            places = positions + length * tf.range(batch)[:, tf.newaxis]  # [B, P], of [B * T]
        flat = tf.reshape(places, [-1]) if weights is None else picked(places, weights)
        rows = tf.gather(tf.reshape(states, [-1, states.shape[-1]]), flat)  # [M, H]
        logits = self.masked_lm_head(  # [M, V]
            rows, word_embeddings=outputs["word_embeddings"], keeps_padding=keeps_padding
        )
        if weights is not None:
            return logits
        return tf.reshape(logits, [*keras.ops.shape(places), logits.shape[-1]])

    def word_loss(self, ids, weights, logits, total, sample_weight=None) -> tf.Tensor:
        """Returns the share in the loss of these words; updates the metrics.

        Args:
            ids, weights: int32 and float32 `[B, P]`, the words that were there and their weights.
            logits: `[B, P, V]`, or `[M, V]` as `word_logits` gives with these weights.
            total: The sum of the weights of the whole batch, times those of their rows.
            sample_weight: `[B]`, the weights of the rows, or None.
        """
        size = self.masked_lm_head.config.vocab_size
        checks = row_checks("masked_ids", ids, size, "vocab_size", weights > 0)
        ids = depending_on(checks, {"ids": ids})["ids"]
        word_weights = weighted(weights, sample_weight)  # [B, P]
        if logits.shape.rank == 2:  # [M, V]
            ids, word_weights = picked(ids, weights), picked(word_weights, weights)  # [M]
        logits = tf.reshape(logits, [-1, logits.shape[-1]])
        ids, weights = tf.reshape(ids, [-1]), tf.reshape(word_weights, [-1])
        losses, best = cross_entropy(ids, logits)
        self.masked_lm_loss.update_state(losses, weights)
        self.perplexity.update_state(losses, weights)
        hits = tf.equal(best, ids)
        self.masked_lm_accuracy.update_state(tf.cast(hits, tf.float32), weights)
        if self.loss is not None:
            losses = self.loss.call(ids, logits[:, :size])
        return tf.reduce_sum(weights * losses) / (total + WEIGHT_SUM_EPSILON)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        totals = self.loss_denominators(x, y, sample_weight)
        return self.partial_loss(x, y, y_pred, sample_weight, training, totals)


def cross_entropy(ids: tf.Tensor, logits: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the losses of words, and the words with the largest logits, of equal ones the first.

    Args:
        ids: int32 `[n]`. The loss of an id that is not in [0, V) is NaN or an error.
        logits: float32 `[n, V]`.
    """
    if not needs_static_shapes():
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
        return losses, tf.argmax(logits, axis=-1, output_type=tf.int32)
    # XLA reads the logits once for the maximum and once for all other sums. With TensorFlow's
    # functions it reads them four times.
    size = logits.shape[1]
    words = tf.range(size)
    largest = tf.stop_gradient(tf.reduce_max(logits, axis=1, keepdims=True))  # [n, 1]
    below = logits - largest
    total = tf.reduce_sum(tf.exp(below), axis=1)
    of_word = tf.reduce_sum(tf.where(words == ids[:, tf.newaxis], below, 0.0), axis=1)
    best = tf.reduce_min(tf.where(logits == largest, words, size), axis=1)
    is_word = (ids >= 0) & (ids < size)
    return tf.where(is_word, tf.math.log(total) - of_word, float("nan")), best


def weighted(weights, sample_weight):
    """Returns weights of words or sentences `[B, …]` times those of rows, `[B]` or None."""
    if sample_weight is None:
        return weights
    # `fit` and `evaluate` of Keras repeat an array for every entry of a dictionary of labels.
    sample_weight = tf.nest.flatten(sample_weight)[0]
    shape = [-1] + [1] * (weights.shape.rank - 1)
    return weights * tf.reshape(tf.cast(sample_weight, tf.float32), shape)


def picked(values, weights):
    """Returns the values `[B, P]` whose weight is above zero: `[M]`."""
    return tf.boolean_mask(values, weights > 0)
