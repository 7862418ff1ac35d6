"""Which tokens of a text have replaced others: ELECTRA's pre-training, and its head."""

from typing import Any

import keras
import tensorflow as tf

from bert_tf.families.network_families import FAMILIES
from bert_tf.layers.kernels import Epilogue
from bert_tf.layers.pooling import first_token
from bert_tf.layers.residual_layer_norm import ResidualLayerNorm
from bert_tf.models.backbone import BertBackbone
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.training.losses.token_loss import OwnTokenLoss


@keras.saving.register_keras_serializable(package="bert_tf")
class BertReplacedTokenDetector(OwnTokenLoss, DenseHeadModel):
    """BERT that predicts for every token whether it has replaced another one.

    Its head is a dense layer with the activation of the network, then one number for each token.
    In DeBERTa-v3, LayerNorm of each vector plus that of the first token, `norm`, comes first.
    `fit` and `evaluate` take token dictionaries and, as `y`, a 1 for each token that has replaced
    another and a 0 for the others. The loss is the mean over the real tokens, including `[CLS]`
    and `[SEP]`. `accuracy`, `precision` and `recall` are in the logs.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`.

    Returns:
        Logits float32 `[B, T]`, above 0 where a token has replaced another. `fit` takes labels
        int32 `[B, T]`, 0 and 1, -100 at tokens that do not count.

    Raises:
        UserError: See `TaskModel`.

    Example:
        >>> model = bert_tf.BertReplacedTokenDetector.from_pretrained("bert-base/")
        >>> pieces = model.detect("a good film")
        >>> [piece.piece for piece in pieces]
        ['a', 'good', 'film']

    Reference: Clark et al. 2020 (arXiv 2003.10555), section 2; google-research/electra,
    `run_pretraining.py`, `_get_discriminator_output`; microsoft/DeBERTa,
    `replaced_token_detection_model.py`.
    """

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.transform = self.dense_head(backbone.config.hidden_size, "transform")
        self.detector = self.dense_head(1, "detector")
        self.norm = None
        if FAMILIES[backbone.config.model_type].detector_norm:
            epsilon = backbone.config.layer_norm_eps
            self.norm = self.built_layer(ResidualLayerNorm, epsilon, name="norm")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.precision = keras.metrics.Mean(name="precision")
        self.recall = keras.metrics.Mean(name="recall")
        self.built = True

    def head(self, outputs, tokens, training=False):
        states = outputs["sequence_output"]  # [B, T, H]
        if self.norm is not None:
            first = first_token(states, self.backbone.padding_mask_of(tokens))  # [B, H]
            states += first[:, tf.newaxis]  # [B, T, H]
        rows = tf.reshape(states, [-1, states.shape[-1]])  # [B, T, H] -> [B * T, H]
        rows = rows if self.norm is None else self.norm(rows)
        activation = Epilogue(activation=self.backbone.config.hidden_act)
        rows = self.transform.apply(rows, activation)
        states = tf.reshape(rows, keras.ops.shape(states))  # [B * T, H] -> [B, T, H]
        return tf.squeeze(self.token_logits(states), -1)  # [B, T, 1] -> [B, T]

    def count_hits(self, found, targets, weights):
        super().count_hits(found, targets, weights)
        self.precision.update_state(targets, weights * found)
        self.recall.update_state(found, weights * targets)

    def detect(
        self,
        texts: Any,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list:
        """Returns the probability of every piece of texts that it has replaced another one.

        Args:
            texts: A list of strings, or one.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            For each text a list of `ScoredPiece`s, or one list for one string. Pieces that are
            truncated have no score.

        Raises:
            UserError: If there is no tokenizer, or an example has several texts.
            DataError: If a text is missing or malformed.
        """
        return self.predict_decoded(texts, batch_size, token_budget, verbose)
