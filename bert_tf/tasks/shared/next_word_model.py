"""What models that write text share: logits of the next words, their loss and metrics.

Glossary: `B` rows, `T` tokens of a row, `M` labelled tokens, `H` hidden size, `V` vocabulary.
"""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.inputs.labels import IGNORED
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.ops.native import needs_static_shapes
from bert_tf.training.evaluation.perplexity import Perplexity
from bert_tf.training.losses.token_loss import TokenLoss, token_weights


class NextWordModel(TokenLoss):
    """A base of models that learn the next word after each token from the true words before it.

    It must come before `TaskModel` in the list of base classes. Only the logits of labelled tokens
    are computed in training. Accuracy and perplexity are always in the logs. For label smoothing
    (Vaswani et al. 2017, section 5.4), `compile` takes a `bert_tf.training.SparseCrossentropy`.
    """

    no_metrics = "only the logits of real tokens are computed in training"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")

    @property
    def target_config(self) -> BertConfig:
        """The configuration of the network that predicts the words."""
        return self.backbone.config

    @property
    def vocab_size(self) -> int:
        """The number of words."""
        return self.target_config.vocab_size

    @property
    def num_token_classes(self):
        return self.vocab_size

    def decoded(self, tokens: dict[str, tf.Tensor], training: bool):
        """Returns the vectors of tokens, from which the next words are predicted.

        Returns:
            The vectors `[B, T, H]`; the embeddings of the words in the output `[V, E]`; and which
            tokens have a next word, bool `[B, T]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `decoded`.")

    def next_word_logits(self, rows: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Returns the logits of the next words: `[M, H]` and `[V, E]` -> float32 `[M, V]`."""
        raise NotImplementedError(f"{type(self).__name__} must have `next_word_logits`.")

    def call(self, inputs, training=False):
        states, words, mask = self.decoded(self.tokens_of(inputs), training)
        layout = TokenLayout.packed(mask) if self._packs_tokens() else TokenLayout.padded(mask)
        rows = layout.to_rows(states)  # [B, T, H] -> [M, H]
        return layout.to_batch(self.next_word_logits(rows, words))  # [M, V] -> [B, T, V]

    def _packs_tokens(self):
        return self.backbone.packs_tokens() and not needs_static_shapes()

    def forward(self, x, y, training):
        """Returns the logits of the labelled words `[M, V]`, with static shapes of all."""
        if needs_static_shapes():
            return self(x, training=training)
        states, words, _ = self.decoded(x, training)
        return self.next_word_logits(tf.boolean_mask(states, y != IGNORED), words)

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        weights, ids = token_weights(y, sample_weight), tf.cast(y, tf.int32)  # [B, T]
        if y_pred.shape.rank == 2:  # [M, V]
            weights, ids = (tf.boolean_mask(values, y != IGNORED) for values in (weights, ids))
        ids = tf.maximum(ids, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, y_pred)  # [M] or [B, T]
        hits = tf.equal(tf.argmax(y_pred, axis=-1, output_type=tf.int32), ids)
        self.accuracy.update_state(tf.cast(hits, tf.float32), weights)
        self.perplexity.update_state(losses, weights)
        if self.loss is not None:
            losses = self.loss.call(ids, y_pred)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), totals["words"])
