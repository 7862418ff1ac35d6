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
        `[R, H]`, and the word embeddings `[V, H]` for a head that shares them: taken from here and
        not from the variable, their two gradients meet without another `[V, H]` tensor.

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
            autocast=False,
        )
        self.position_embeddings = self.add_weight(
            name="position_embeddings",
            shape=[self.config.max_position_embeddings, hidden_size],
            initializer=initializer,
            autocast=False,
        )
        self.segment_embeddings = self.add_weight(
            name="segment_embeddings",
            shape=[self.config.type_vocab_size, hidden_size],
            initializer=initializer,
            autocast=False,
        )
        self.layer_norm.build([None, hidden_size])
        self.built = True

    def call(self, token_ids, segment_ids, positions, training=False):
        words, table = _lookup(tf.convert_to_tensor(self.word_embeddings), token_ids)  # -> [R, H]
        places = tf.gather(tf.convert_to_tensor(self.position_embeddings), positions)
        segments = tf.gather(tf.convert_to_tensor(self.segment_embeddings), segment_ids)
        words, others = (tf.cast(x, self.compute_dtype) for x in (words, places + segments))
        embedded = self.layer_norm(words, residual=others)
        return self.dropout(embedded, training=training), table

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


@tf.custom_gradient
def _lookup(table, token_ids):
    """Rows of the table `[R, H]`, and the table itself.

    The gradient of tf.gather is a tf.IndexedSlices, and TensorFlow adds such a one to the dense
    gradient of the tied head by a copy of the whole table's size and a sum on one thread. Here the
    gradient that reaches the second output is added to in place.
    """

    def gradient(d_words, d_table):
        return tf.tensor_scatter_nd_add(d_table, token_ids[:, tf.newaxis], d_words), None

    return (tf.gather(table, token_ids), tf.identity(table)), gradient
