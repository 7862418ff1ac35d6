"""The encoder of word vectors, and the base of the other encoders before BERT."""

import keras
import tensorflow as tf

from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.dense import Dense
from research.baselines.config import BaselineConfig


@keras.saving.register_keras_serializable(package="bert_tf")
class BaselineEncoder(ConfiguredLayer):
    """An encoder without blocks: the vectors of tokens are those of the words.

    A subclass fills `blocks` and overrides `call`.

    Args:
        config: A `BaselineConfig`, or its `to_dict()`.

    Call arguments:
        words: `[B, T, H]`.
        padding_mask: bool `[B, T]`, True for real tokens, which may be anywhere.

    Returns:
        A list of the vectors after each block, `[B, T, H]` each. Those of padding are arbitrary.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> from research.baselines.encoder import BaselineEncoder
        >>> encoder = BaselineEncoder(BaselineConfig(hidden_size=32))
        >>> encoder(tf.ones([1, 3, 32]), tf.constant([[True, True, False]]))
        []
    """

    config_class = BaselineConfig

    def __init__(self, config: BaselineConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        self.blocks = []

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        self.built = True

    def call(self, words, padding_mask, training=False) -> list[tf.Tensor]:
        return []

    def shared_parts(self) -> list:
        """Returns nothing: every variable belongs to one block."""
        return []

    def dense_layers(self) -> dict[str, Dense]:
        """Returns nothing: no kernel can have another form."""
        return {}

    def attention_layers(self) -> dict[str, keras.layers.Layer]:
        """Returns nothing."""
        return {}
