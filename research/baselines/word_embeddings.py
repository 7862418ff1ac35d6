"""The embeddings of the encoders before BERT: a table of word vectors."""

import keras
import tensorflow as tf

from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.initial_weights import truncated_normal
from research.baselines.config import BaselineConfig


@keras.saving.register_keras_serializable(package="bert_tf")
class WordEmbeddings(ConfiguredLayer):
    """Converts token ids to the vectors of their words.

    Args:
        config: A `BaselineConfig`, or its `to_dict()`.

    Call arguments:
        token_ids: int32 `[B, T]`.

    Returns:
        `[B, T, H]`.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> from research.baselines.word_embeddings import WordEmbeddings
        >>> config = BaselineConfig(vocab_size=64, hidden_size=32)
        >>> WordEmbeddings(config)(tf.constant([[5, 6, 7]])).shape
        TensorShape([1, 3, 32])
    """

    config_class = BaselineConfig

    def __init__(self, config: BaselineConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        rate = self.config.hidden_dropout_prob
        self.dropout = Dropout(rate, dtype=self.dtype_policy, name="dropout")

    def build(self, input_shape=None):
        self.word_embeddings = self.add_weight(
            name="word_embeddings",
            shape=[self.config.vocab_size, self.config.hidden_size],
            initializer=truncated_normal(self.config.initializer_range),
            autocast=False,
        )
        self.built = True

    def call(self, token_ids, training=False):
        words = tf.gather(tf.convert_to_tensor(self.word_embeddings), token_ids)  # [B, T, H]
        return self.dropout(tf.cast(words, self.compute_dtype), training=training)
