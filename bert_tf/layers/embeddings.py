"""Word, position and segment embeddings: their sum, LayerNorm, dropout."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.initializers import bert_initializer
from bert_tf.layers.residual_layer_norm import ResidualLayerNorm


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(keras.layers.Layer):
    """Turns rows of token ids into rows of vectors.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.

    Call arguments:
        token_ids: int32 `[R]`.
        segment_ids: int32 `[R]`.
        positions: int32 `[R]`, the place of each token in its own sequence.

    Returns:
        `[R, H]`.

    Reference: Devlin et al. 2019, figure 2; google-research/bert modeling.py,
    `embedding_postprocessor`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig(**config)
        self.layer_norm = ResidualLayerNorm(
            self.config.layer_norm_eps, dtype=self.dtype_policy, name="layer_norm"
        )
        self.dropout = Dropout(
            self.config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )

    def build(self, input_shape=None):
        initializer = bert_initializer(self.config.initializer_range)
        hidden_size = self.config.hidden_size
        self.word_embeddings = self.add_weight(
            name="word_embeddings",
            shape=[self.config.vocab_size, hidden_size],
            initializer=initializer,
        )
        self.position_embeddings = self.add_weight(
            name="position_embeddings",
            shape=[self.config.max_position_embeddings, hidden_size],
            initializer=initializer,
        )
        self.segment_embeddings = self.add_weight(
            name="segment_embeddings",
            shape=[self.config.type_vocab_size, hidden_size],
            initializer=initializer,
        )
        self.layer_norm.build([None, hidden_size])
        self.built = True

    def call(self, token_ids, segment_ids, positions, training=False):
        words = tf.gather(tf.convert_to_tensor(self.word_embeddings), token_ids)  # [R] -> [R, H]
        places = tf.gather(tf.convert_to_tensor(self.position_embeddings), positions)
        segments = tf.gather(tf.convert_to_tensor(self.segment_embeddings), segment_ids)
        embedded = self.layer_norm(words, residual=places + segments)
        return self.dropout(embedded, training=training)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
