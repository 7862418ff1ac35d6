"""Pre-training: masked language model and next-sentence prediction on one backbone."""

import keras
import tensorflow as tf

from bert_tf.layers.dense import Dense
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone

# Added to the sum of the weights, so that a batch without masks gives zero, not NaN.
WEIGHT_SUM_EPSILON = 1e-5  # google-research/bert run_pretraining.py


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(keras.Model):
    """BERT with the two heads of pre-training.

    Only the masked positions go through the vocabulary matmul.

    Args:
        backbone: The `BertBackbone`.

    Call arguments:
        inputs: What the backbone takes, and `masked_positions` int32 `[B, P]`.

    Returns:
        `masked_logits` float32 `[B, P, V]` and `next_sentence_logits` float32 `[B, 2]` (0 is
        IsNext). `fit` takes the labels `masked_ids` int `[B, P]`, `masked_weights` float `[B, P]`
        (0 for unused places) and `next_sentence_labels` int `[B]`; the loss is the masked one,
        Σwℓ / (Σw + 1e-5), plus the mean of the other.

    Reference: Devlin et al. 2019, section 3.1; google-research/bert run_pretraining.py.
    """

    def __init__(self, backbone: BertBackbone, **kwargs):
        super().__init__(**kwargs)
        config = backbone.config
        self.backbone = backbone
        self.masked_lm_head = MaskedLMHead(config, dtype=self.dtype_policy, name="masked_lm")
        self.next_sentence = Dense(
            2, config.initializer_range, dtype=self.dtype_policy, name="next_sentence"
        )
        self.masked_lm_loss = keras.metrics.Mean(name="masked_lm_loss")
        self.masked_lm_accuracy = keras.metrics.Mean(name="masked_lm_accuracy")
        self.next_sentence_loss = keras.metrics.Mean(name="next_sentence_loss")
        self.next_sentence_accuracy = keras.metrics.Mean(name="next_sentence_accuracy")
        self.build()

    def build(self, input_shape=None):
        if not self.masked_lm_head.built:
            self.masked_lm_head.build()
            self.next_sentence.build([None, self.backbone.config.hidden_size])
        self.built = True

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        positions = tf.cast(inputs["masked_positions"], tf.int32)
        rows = tf.gather(outputs["sequence_output"], positions, batch_dims=1)  # -> [B, P, H]
        shape = tf.shape(positions)
        logits = self._masked_logits(tf.reshape(rows, [-1, rows.shape[-1]]))
        return {
            "masked_logits": tf.reshape(logits, [shape[0], shape[1], logits.shape[-1]]),
            "next_sentence_logits": self._next_sentence_logits(outputs["pooled_output"]),
        }

    def _masked_logits(self, rows):
        words = tf.cast(
            tf.convert_to_tensor(self.backbone.embeddings.word_embeddings), self.compute_dtype
        )
        return tf.cast(self.masked_lm_head(rows, word_embeddings=words), tf.float32)

    def _next_sentence_logits(self, pooled):
        return tf.cast(self.next_sentence(pooled), tf.float32)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        weights = tf.cast(tf.reshape(y["masked_weights"], [-1]), tf.float32)  # [B * P]
        ids = tf.reshape(tf.cast(y["masked_ids"], tf.int32), [-1])
        vocabulary = y_pred["masked_logits"].shape[-1]
        logits = tf.reshape(y_pred["masked_logits"], [-1, vocabulary])
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
        total = tf.reduce_sum(weights)
        masked_loss = tf.reduce_sum(weights * losses) / (total + WEIGHT_SUM_EPSILON)
        next_labels = tf.reshape(tf.cast(y["next_sentence_labels"], tf.int32), [-1])
        next_losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
            next_labels, y_pred["next_sentence_logits"]
        )
        self.masked_lm_loss.update_state(masked_loss, total)
        self.next_sentence_loss.update_state(next_losses)
        hits = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), ids)
        self.masked_lm_accuracy.update_state(tf.cast(hits, tf.float32), weights)
        next_hits = tf.equal(
            tf.argmax(y_pred["next_sentence_logits"], axis=-1, output_type=tf.int32), next_labels
        )
        self.next_sentence_accuracy.update_state(tf.cast(next_hits, tf.float32))
        return masked_loss + tf.reduce_mean(next_losses)

    def get_config(self):
        return {
            "name": self.name,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            "backbone": keras.saving.serialize_keras_object(self.backbone),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        config["backbone"] = keras.saving.deserialize_keras_object(config["backbone"])
        return cls(**config)
