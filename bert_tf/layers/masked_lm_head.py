"""The masked LM head: from the vectors of tokens to logits over the vocabulary."""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.families.network_families import FAMILIES
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from bert_tf.layers.kernels.epilogue import Epilogue
from bert_tf.layers.kernels.prepacked_kernel import PrepackedKernel


@keras.saving.register_keras_serializable(package="bert_tf")
class MaskedLMHead(ConfiguredLayer):
    """A dense layer, an activation and LayerNorm, then the tied word embeddings and a bias.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        has_transform: Whether the dense layer, activation and LayerNorm come first. Without them,
            the head is that of BERT-generation (`transformers`, `BertGenerationOnlyLMHead`).

    Call arguments:
        rows: `[R, H]`, the vectors of the masked positions only.
        word_embeddings: `[V, E]`, the embedding table of the backbone.
        prepacked_words: The same as a `PrepackedKernel` `[E, V]`, which is used instead, for
            inference only.

    Returns:
        Logits `[R, V]`.

    Reference: google-research/bert run_pretraining.py, `get_masked_lm_output`.
    """

    def __init__(self, config: BertConfig | dict, has_transform: bool = True, **kwargs):
        super().__init__(config, **kwargs)
        self.has_transform = has_transform
        self.transform = self.layer_norm = None
        if has_transform:
            self.transform = self.make_dense(self.config.embedding_width, "transform")
            self.layer_norm = self.make_layer_norm("layer_norm")

    def build(self, input_shape=None):
        if self.has_transform:
            self.transform.build([None, self.config.hidden_size])
            self.layer_norm.build([None, self.config.embedding_width])
        self.output_bias = self.add_weight(
            name="bias", shape=[self.config.vocab_size], initializer="zeros"
        )
        self.built = True

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], self.config.vocab_size)

    def call(self, rows, word_embeddings, prepacked_words: PrepackedKernel | None = None):
        if self.has_transform:
            family = FAMILIES[self.config.model_type]
            activation = Epilogue(activation=family.masked_lm_act or self.config.hidden_act)
            rows = self.transform.apply(rows, activation)
            rows = self.layer_norm(rows)
        bias = tf.convert_to_tensor(self.output_bias)
        if prepacked_words is not None:
            return prepacked_words.apply(rows, Epilogue(bias=bias))  # [R, E] -> [R, V]
        logits = tf.matmul(rows, word_embeddings, transpose_b=True)  # [R, E] x [V, E] -> [R, V]
        return tf.nn.bias_add(logits, bias)

    def dense_layers(self) -> dict[str, Dense]:
        """Returns the dense layer, if there is one, by its path in the head."""
        return {"transform": self.transform} if self.has_transform else {}

    def get_config(self):
        return {**super().get_config(), "has_transform": self.has_transform}
