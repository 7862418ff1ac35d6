"""Word, position and segment embeddings: their sum, LayerNorm, dropout, and a dense layer."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.config import ABSOLUTE, BertConfig
from bert_tf.errors import UserError, require
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.layers.masked_lm_head import prepack_words
from bert_tf.layers.quantization import require_int8


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEmbeddings(ConfiguredLayer):
    """Converts token ids to vectors.

    Without segment embeddings (`config.type_vocab_size` 0), `segment_embeddings` is None. So are
    `task_embeddings` without `config.task_type_vocab_size`, `position_embeddings` unless positions
    are absolute, `layer_norm` without `config.embedding_norm`, and
    `projection`, the dense layer from `E` to `H`, without `config.embedding_size`.

    Args:
        config: A `BertConfig`, or its `to_dict()`.

    Call arguments:
        token_ids: int32 `[R]`.
        segment_ids: int32 `[R]`, not used without segment embeddings.
        positions: int32 `[R]`, the position of each token in its own sequence.
        word_vectors: float `[R, E]`, used instead of the word embeddings; or None.

    Returns:
        The vectors `[R, H]`, and the word embeddings `[V, E]` for a head that shares them. If the
        head uses this output and not the variable, the two gradients are added without another
        `[V, E]` tensor. The second output of a quantized layer is None; see `dequantized_words`.

    Example:
        >>> config = bert_tf.BertConfig(vocab_size=64, hidden_size=32, num_attention_heads=4)
        >>> layer = bert_tf.layers.BertEmbeddings(config)
        >>> rows, words = layer(tf.constant([5, 6]), tf.constant([0, 0]), tf.constant([0, 1]))
        >>> rows.shape, words.shape
        (TensorShape([2, 32]), TensorShape([64, 32]))

    Reference: Devlin et al. 2019, figure 2; google-research/bert modeling.py,
    `embedding_postprocessor`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        self.layer_norm = None
        if self.config.embedding_norm:
            self.layer_norm = self.make_layer_norm("layer_norm")
        self.is_quantized = False
        self.prepacked_words = None
        self.dropout = Dropout(
            self.config.hidden_dropout_prob, dtype=self.dtype_policy, name="dropout"
        )
        self.projection = None
        if self.config.embedding_size:
            self.projection = self.make_dense(self.config.hidden_size, "projection")

    def build(self, input_shape=None):
        config, width = self.config, self.config.embedding_width

        def table(name, size):
            # One for each: called again, an initializer returns the same numbers.
            initializer = truncated_normal(config.initializer_range)
            return self.add_weight(
                name=name, shape=[size, width], initializer=initializer, autocast=False
            )

        self.word_embeddings = table("word_embeddings", config.vocab_size)
        self.position_embeddings = None
        if config.position_embedding_type == ABSOLUTE:
            num_positions = config.position_offset + config.max_position_embeddings
            self.position_embeddings = table("position_embeddings", num_positions)
        self.segment_embeddings = None
        if config.type_vocab_size:
            self.segment_embeddings = table("segment_embeddings", config.type_vocab_size)
        self.task_embeddings = None
        if config.task_type_vocab_size:
            self.task_embeddings = table("task_embeddings", config.task_type_vocab_size)
        if self.layer_norm is not None:
            self.layer_norm.build([None, width])
        if self.projection is not None:
            self.projection.build([None, width])
        self.built = True

    def quantize(self, mode: str = "int8", type_check: bool = True, config=None) -> None:
        """Replaces the word embeddings by 8-bit integers with one scale per word, for inference.

        For the arguments see `Dense.quantize`.

        Raises:
            UserError: If `mode` is not "int8", or if the word embeddings are already quantized.

        Reference: `keras.layers.Embedding.quantize`.
        """
        require_int8(mode, config)
        rule, dtype = "must not be quantized yet", self.word_embeddings.dtype
        require(not self.is_quantized, rule, UserError, word_embeddings=dtype)
        table = tf.convert_to_tensor(self.word_embeddings)
        values, scale = ops.quantize_kernel(tf.transpose(table))  # [V, E] -> [E, V], [V]
        self.set_quantized_words(tf.transpose(values), scale)

    def set_quantized_words(self, values: tf.Tensor, scale: tf.Tensor) -> None:
        """Replaces the word embeddings by integers, int8 `[V, E]`, and scales, float32 `[V]`."""
        if self.is_quantized:
            self.word_embeddings.assign(values)
            self.word_embeddings_scale.assign(scale)
            return
        variables = {"word_embeddings": values, "word_embeddings_scale": scale}
        keras_compat.replace_variable(self, "word_embeddings", variables)
        self.is_quantized = True

    def dequantized_words(self) -> tf.Tensor:
        """Returns the quantized word embeddings as float32 `[V, E]`."""
        values = tf.cast(tf.convert_to_tensor(self.word_embeddings), tf.float32)
        return values * tf.convert_to_tensor(self.word_embeddings_scale)[:, tf.newaxis]

    def prepack_words(self, dtype: str | None = None) -> None:
        """Makes `prepacked_words`, the `PrepackedWords` for a head; see `Dense.pack`."""
        prepack_words(self, self.word_table, dtype)

    def word_table(self) -> tf.Tensor:
        """Returns the word embeddings `[V, E]`; those of a quantized layer are dequantized."""
        if self.is_quantized:
            return self.dequantized_words()
        return tf.convert_to_tensor(self.word_embeddings)

    def call(self, token_ids, segment_ids, positions, training=False, word_vectors=None):
        table = tf.convert_to_tensor(self.word_embeddings)  # [V, E]
        if self.is_quantized:
            values = tf.cast(tf.gather(table, token_ids), tf.float32)  # [R, E]
            scale = tf.gather(tf.convert_to_tensor(self.word_embeddings_scale), token_ids)  # [R]
            words, table = values * scale[:, tf.newaxis], None
        else:
            shape = table.shape
            words, table = _lookup_words(table, tf.cast(token_ids, tf.int32))
            words.set_shape([token_ids.shape[0], shape[1]])
            table.set_shape(shape)
        words = words if word_vectors is None else word_vectors
        embedded = tf.cast(words, self.compute_dtype)
        others = []  # [R, E] each
        if self.position_embeddings is not None:
            places = positions + self.config.position_offset
            others.append(lookup(tf.convert_to_tensor(self.position_embeddings), places))
        if self.segment_embeddings is not None:
            others.append(lookup(tf.convert_to_tensor(self.segment_embeddings), segment_ids))
        if self.task_embeddings is not None:  # every token has task 0
            ids = tf.zeros_like(segment_ids)
            others.append(lookup(tf.convert_to_tensor(self.task_embeddings), ids))
        others = tf.cast(tf.add_n(others), self.compute_dtype) if others else None
        norm = self.layer_norm
        if norm is not None:
            options = norm.gamma, norm.beta, norm.epsilon
            embedded = ops.fused_residual_layer_norm(embedded, others, None, *options)
        elif others is not None:
            embedded += others
        if training:
            embedded = self.dropout(embedded, training=True)
        if self.projection is not None:
            embedded = self.projection(embedded)  # [R, E] -> [R, H]
        return embedded, table


def lookup(table: tf.Tensor, ids: tf.Tensor) -> tf.Tensor:
    """Returns rows `[R, E]` of a table `[N, E]`, by ids `[R]`; the gradient is a tensor.

    The gradient of `tf.gather` is a `tf.IndexedSlices`, in which a row may be several times.
    Keras's optimizers square and clip these parts, not their sum.
    """
    # The gradient of tf.reshape adds up the parts.
    return tf.gather(tf.reshape(table, table.shape), ids)


# A separate function, which is not traced again for each model. TensorFlow keeps the graph in which
# tf.custom_gradient was called until the process ends. If this were the graph of a whole model, its
# weights would also be kept.
@tf.function(autograph=False, reduce_retracing=True)
@tf.custom_gradient
def _lookup_words(table, token_ids):
    """Returns rows of the table `[R, E]`, and the table itself `[V, E]`.

    The gradient of the rows is added in place to the gradient of the table. The gradient of
    tf.gather is a tf.IndexedSlices. To add it to the dense gradient of the tied head, TensorFlow
    makes a copy of the size of the table and computes the sum in one thread.
    """

    def gradient(d_words, d_table):
        return tf.tensor_scatter_nd_add(d_table, token_ids[:, tf.newaxis], d_words), None

    return (tf.gather(table, token_ids), tf.identity(table)), gradient


LONGEST_WAVE = 10_000.0  # Vaswani et al. 2017, in units of 2π positions


def sinusoidal_positions(length: int, width: int) -> np.ndarray:
    """Returns the positions of Vaswani et al. 2017, section 3.5, float32 `[length, width]`.

    Even columns are sines, odd ones cosines of the same frequencies.

    Example:
        >>> sinusoidal_positions(2, 2).round(2)
        array([[0.  , 1.  ],
               [0.84, 0.54]], dtype=float32)
    """
    columns = np.arange(width)
    frequencies = LONGEST_WAVE ** (-(columns - columns % 2) / width)
    angles = np.arange(length)[:, np.newaxis] * frequencies
    return np.where(columns % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)
