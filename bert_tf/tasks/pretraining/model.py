"""Pre-training: masked words and next sentences on one backbone, and the paper's variants of it."""

import keras
import tensorflow as tf

from bert_tf.errors import require_one_of
from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_inputs import depending_on, row_checks
from bert_tf.inputs.word_labels import next_words
from bert_tf.layers.dense import Dense
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.ops.native import needs_static_shapes
from bert_tf.tasks.masked_lm.masked_word_model import MaskedWordModel, weighted

OBJECTIVES = ("mlm_nsp", "mlm", "mlm_sop", "ltr")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPretrainer(TaskModel, MaskedWordModel):
    """BERT with the two heads of pre-training.

    Only the masked positions go through the vocabulary matmul; in `fit` and `evaluate` only those
    with a weight above zero (under XLA and on a TPU all P).

    Args:
        backbone: The `BertBackbone`.
        objective: "mlm_nsp": masked words and next sentence. "mlm": masked words only. "mlm_sop":
            masked words and the order of two sentences (ALBERT's), which differs from "mlm_nsp" in
            the data only. "ltr": the next word at every token, which attends only to itself and to
            earlier tokens; masked words in the data are restored first.

    Call arguments:
        inputs: What the backbone takes, and `masked_positions` int32 `[B, P]` (for "ltr" not
            needed).

    Returns:
        `masked_logits` float32 `[B, P, V]` (for "ltr" `[B, T, V]`) and, for objectives with
        sentences, `next_sentence_logits` float32 `[B, 2]` (0 is IsNext) or, packed, `[B, S, 2]`.

        `fit` takes the labels `masked_ids` int `[B, P]`, `masked_weights` float `[B, P]` (0 for
        unused places), `next_sentence_labels` int `[B]` or `[B, S]` and, optionally,
        `next_sentence_weights` float of the same shape; the loss is the masked one,
        Σwℓ / (Σw + 1e-5), plus the mean of the other. A row's `sample_weight` is a factor of w in
        both.

    Raises:
        UserError: If `objective` is unknown.

    Example:
        >>> model = bert_tf.BertPretrainer(bert_tf.BertBackbone.from_pretrained("bert-base/"))
        >>> outputs = model(
        ...     {
        ...         "token_ids": tf.constant([[2, 5, 6, 3]]),
        ...         "masked_positions": tf.constant([[1, 2]]),
        ...     }
        ... )
        >>> outputs["masked_logits"].shape, outputs["next_sentence_logits"].shape
        (TensorShape([1, 2, 64]), TensorShape([1, 2]))

    Reference: Devlin et al. 2019, sections 3.1 and 5.1; google-research/bert run_pretraining.py;
    Lan et al. 2020 (ALBERT, arXiv 1909.11942), section 3.1.
    """

    def __init__(self, backbone: BertBackbone, objective: str = "mlm_nsp", **kwargs):
        super().__init__(backbone, **kwargs)
        require_one_of("objective", objective, OBJECTIVES)
        config = backbone.config
        self.objective = objective
        self.masked_lm_head = self.built_layer(MaskedLMHead, config, name="masked_lm")
        self.padding_share = keras.metrics.Mean(name="padding_share")
        self.next_sentence = None
        if objective in ("mlm_nsp", "mlm_sop"):
            stddev = config.initializer_range
            self.next_sentence = self.built_layer(Dense, 2, stddev, name="next_sentence")
            self.next_sentence_loss = keras.metrics.Mean(name="next_sentence_loss")
            self.next_sentence_accuracy = keras.metrics.Mean(name="next_sentence_accuracy")
        self.uses_pooler = self.next_sentence is not None
        self.built = True

    def call(self, inputs, training=False, weights=None, keeps_padding=False):
        """`weights` `[B, P]`: logits `[M, V]` for the M places whose weight is above zero.

        `keeps_padding`: see `MaskedLMHead`.
        """
        outputs = self.backbone(
            inputs,
            training=training,
            output_word_embeddings=True,
            causal=True if self.objective == "ltr" else None,
        )
        positions = None if self.objective == "ltr" else inputs["masked_positions"]
        logits = self.word_logits(outputs, positions, weights, keeps_padding)
        results = {"masked_logits": logits}
        if self.next_sentence is not None:
            pooled = outputs["pooled_output"]  # [B, H] or [B, S, H]
            rows = tf.reshape(pooled, [-1, pooled.shape[-1]])  # [B, S, H] -> [B * S, H]
            logits = tf.cast(self.next_sentence(rows), tf.float32)
            shape = [*keras.ops.shape(pooled)[:-1], 2]
            results["next_sentence_logits"] = tf.reshape(logits, shape)
        return results

    def forward(self, x, y, training):
        weights = None if needs_static_shapes() else self._targets(x, y)[1]
        options = {"training": training, "weights": weights, "keeps_padding": True}
        return self(self._restored(x, y), **options)

    def _restored(self, x, y):
        """Returns the inputs, for "ltr" with the masked words restored."""
        if self.objective != "ltr" or "masked_ids" not in (y or {}):
            return x
        token_ids = tf.cast(x["token_ids"], tf.int32)
        positions = tf.cast(x["masked_positions"], tf.int32)  # [B, P]
        masked = tf.gather(token_ids, positions, batch_dims=1)
        # Added, not assigned: unused places repeat a position.
        change = tf.where(y["masked_weights"] > 0, tf.cast(y["masked_ids"], tf.int32) - masked, 0)
        rows = tf.broadcast_to(tf.range(tf.shape(positions)[0])[:, tf.newaxis], tf.shape(positions))
        indices = tf.stack([rows, positions], axis=-1)  # [B, P, 2]
        return {**x, "token_ids": tf.tensor_scatter_nd_add(token_ids, indices, change)}

    def _targets(self, x, y):
        """Returns the words to predict and their weights: `[B, P]`, for "ltr" `[B, T]`."""
        if self.objective != "ltr":
            return tf.cast(y["masked_ids"], tf.int32), tf.cast(y["masked_weights"], tf.float32)
        inputs = self._restored(x, y)
        real = self.backbone.padding_mask_of(inputs)
        ids = next_words(inputs["token_ids"], real)
        followed = ids != IGNORED
        if "sequence_ids" in inputs:
            sequence_ids = tf.cast(inputs["sequence_ids"], tf.int32)
            followed &= next_words(sequence_ids, real) == sequence_ids
        return tf.where(followed, ids, 0), tf.cast(followed, tf.float32)

    def _sentence_targets(self, y, sample_weight):
        """Returns labels and weights of the sentence pairs, flat."""
        labels = tf.cast(y["next_sentence_labels"], tf.int32)  # [B] or [B, S]
        checks = row_checks("next_sentence_labels", labels, 2, "2")
        labels = depending_on(checks, {"labels": labels})["labels"]
        weights = tf.cast(y.get("next_sentence_weights", tf.ones_like(labels)), tf.float32)
        weights = weighted(weights, sample_weight)
        return tf.reshape(labels, [-1]), tf.reshape(weights, [-1])

    def loss_denominators(self, x, y, sample_weight):
        words = weighted(self._targets(x, y)[1], sample_weight)
        totals = {"words": tf.reduce_sum(words)}
        if self.next_sentence is not None:
            totals["sentences"] = tf.reduce_sum(self._sentence_targets(y, sample_weight)[1])
        return totals

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        words = (*self._targets(x, y), y_pred["masked_logits"], totals["words"])
        loss = self.word_loss(*words, sample_weight)
        if self.next_sentence is not None:
            labels, weights = self._sentence_targets(y, sample_weight)
            logits = tf.reshape(y_pred["next_sentence_logits"], [-1, 2])
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
            loss += tf.math.divide_no_nan(tf.reduce_sum(weights * losses), totals["sentences"])
            self.next_sentence_loss.update_state(losses, weights)
            hits = tf.equal(tf.argmax(logits, axis=-1, output_type=tf.int32), labels)
            self.next_sentence_accuracy.update_state(tf.cast(hits, tf.float32), weights)
        if x is not None:
            real = tf.cast(self.backbone.padding_mask_of(x), tf.float32)
            self.padding_share.update_state(1.0 - tf.reduce_mean(real, axis=1))
        return loss
