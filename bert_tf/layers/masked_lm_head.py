"""The masked LM head: from vectors of tokens to logits, by the word embeddings or a packed copy."""

from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf import ops
from bert_tf.base import keras_compat
from bert_tf.base.keras_compat import QuickLayer
from bert_tf.config import PADDING_LOGIT, BertConfig
from bert_tf.families.network_families import FAMILIES
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.initial_weights import truncated_normal
from bert_tf.layers.kernels import Epilogue, PrepackedKernel
from bert_tf.ops.native import needs_static_shapes

# XLA pads the sides of a matmul in 16 bits to a multiple of 8, in a copy of the tensors in the
# forward pass and in the gradient. Here the padding is part of the cast of the table, and the
# logits have it from the start. Tensor cores prefer a multiple of 64.
_ALIGNED_WORDS = 64


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(ConfiguredLayer):
    """A dense layer, an activation and LayerNorm, then the tied word embeddings and a bias.

    With `config.output_embedding_size` it has a table of its own instead of the word embeddings.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        has_transform: Whether the dense layer, activation and LayerNorm come first. Without them,
            the head is that of BERT-generation (`transformers`, `BertGenerationOnlyLMHead`). No
            head has them without `config.masked_lm_transform`.

    Call arguments:
        rows: `[R, H]`, the vectors of the masked positions only.
        word_embeddings: `[V, E]`, the embedding table of the backbone.
        prepacked_words: The same as `PrepackedWords`, which are used instead, for inference only.
        keeps_padding: Whether the logits may have more than V columns, as they do in 16 bits under
            XLA. Those of words that do not exist are at the end and hugely negative.

    Returns:
        Logits float32 `[R, V]`.

    Reference: google-research/bert run_pretraining.py, `get_masked_lm_output`.
    """

    def __init__(self, config: BertConfig | dict, has_transform: bool = True, **kwargs):
        super().__init__(config, **kwargs)
        self.has_transform = has_transform and self.config.masked_lm_transform
        self.transform = self.layer_norm = self.output_embeddings = self.output_bias = None
        self.width = self.config.output_embedding_size or self.config.embedding_width
        if self.has_transform:
            self.transform = self.make_dense(self.width, "transform", self.config.classifier_bias)
            self.layer_norm = self.make_layer_norm("layer_norm")

    def build(self, input_shape=None):
        config = self.config
        if self.has_transform:
            self.transform.build([None, config.hidden_size])
            self.layer_norm.build([None, self.width])
        if config.output_embedding_size:
            self.output_embeddings = self.add_weight(
                name="output_embeddings",
                shape=[config.vocab_size, self.width],
                initializer=truncated_normal(config.initializer_range),
            )
        if self.has_transform or config.mlp_bias:
            self.output_bias = self.add_weight(
                name="bias", shape=[config.vocab_size], initializer="zeros"
            )
        self.built = True

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.config.vocab_size)

    def call(
        self,
        rows,
        word_embeddings,
        prepacked_words: "PrepackedWords | None" = None,
        keeps_padding: bool = False,
    ):
        if self.has_transform:
            config, family = self.config, FAMILIES[self.config.model_type]
            activation = family.masked_lm_act or config.hidden_act
            if config.pooler_use == "tokens":  # the two heads are one in `transformers`
                activation = config.pooler_act
            rows = self.transform.apply(rows, Epilogue(activation=activation))
            rows = self.layer_norm(rows)
        bias = None if self.output_bias is None else tf.convert_to_tensor(self.output_bias)
        if self.output_embeddings is not None:
            word_embeddings, prepacked_words = tf.convert_to_tensor(self.output_embeddings), None
        if prepacked_words is not None:
            logits = prepacked_words.kernel_impl.apply(rows, Epilogue(bias=bias))
        else:
            num_words = word_embeddings.shape[0]
            padding = -num_words % _ALIGNED_WORDS
            is_padded = padding and rows.dtype.size == 2 and needs_static_shapes()
            if is_padded:
                word_embeddings = tf.pad(word_embeddings, [[0, padding], [0, 0]])
                bias = tf.zeros([num_words], rows.dtype) if bias is None else bias
                padding_logit = max(PADDING_LOGIT, rows.dtype.min)
                bias = tf.pad(bias, [[0, padding]], constant_values=padding_logit)
            logits = tf.matmul(rows, word_embeddings, transpose_b=True)  # [R, E] x [V, E]
            logits = logits if bias is None else tf.nn.bias_add(logits, bias)
            if is_padded and not keeps_padding:
                logits = logits[..., :num_words]
        return tf.cast(logits, tf.float32)  # [R, V]

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layer, if there is one, by its path in the head."""
        return {"transform": self.transform} if self.has_transform else {}


class PrepackedWords(QuickLayer):
    """A prepacked copy of the word embeddings, for the logits of a head.

    Files of weights do not hold it: it is made again from the table when the table is loaded. The
    layer that owns the table must own this layer, so that Keras loads the table first.

    Args:
        table: Returns the embeddings of the words, float `[V, E]`.
        packed_dtype: The dtype of the copy: "bfloat16", or None for the compute dtype.

    Attributes:
        kernel_impl: The `PrepackedKernel` `[E, V]`.

    Example:
        >>> words = PrepackedWords(lambda: 2.0 * tf.eye(4))
        >>> words.kernel_impl.shape
        (4, 4)
    """

    def __init__(self, table: Callable[[], tf.Tensor], packed_dtype: str | None = None, **kwargs):
        super().__init__(**kwargs)
        self.table = table
        self.packed_dtype = packed_dtype or self.compute_dtype
        packed = self._packed_table()
        self.packed_words = self.add_weight(
            name="packed_words",
            shape=packed.shape,
            dtype=packed.dtype.name,
            initializer="zeros",
            trainable=False,
            autocast=False,
        )
        self.packed_words.assign(packed)
        num_words, width = table().shape
        self.kernel_impl = PrepackedKernel(self.packed_words, (width, num_words))
        self.built = True

    def _packed_table(self):
        return ops.pack_dense(tf.cast(self.table(), self.packed_dtype), transposed=True)

    def save_own_variables(self, store):
        """Saves nothing."""

    def load_own_variables(self, store):
        self.packed_words.assign(self._packed_table())


def prepack_words(
    owner: keras.layers.Layer, table: Callable[[], tf.Tensor], packed_dtype: str | None
) -> None:
    """Gives the built layer that owns a table `prepacked_words`, unless it has them."""
    if owner.prepacked_words is not None:
        return
    words = PrepackedWords(table, packed_dtype, dtype=owner.dtype_policy, name="prepacked_words")
    with keras_compat.unlocked(owner):
        owner.prepacked_words = words
