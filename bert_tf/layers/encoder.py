"""The stack of encoder blocks."""

import keras

from bert_tf.config import BertConfig
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.token_layout import TokenLayout


@keras.saving.register_keras_serializable(package="bert_tf")
class BertEncoder(keras.layers.Layer):
    """`config.num_hidden_layers` blocks on `[R, H]`.

    Args:
        config: `BertConfig` or the dictionary of its `to_dict`.

    Call arguments:
        rows: `[R, H]`.
        layout: The `TokenLayout` of the rows.
        return_probabilities: Whether to collect the attention probabilities.

    Returns:
        The rows after every block, a list of L times `[R, H]`, and the list of attention
        probabilities, L times `[B, N, T, T]` (empty unless asked for).

    Reference: google-research/bert modeling.py, `transformer_model`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig(**config)
        self.blocks = [
            BertEncoderBlock(self.config, dtype=self.dtype_policy, name=f"layer_{index}")
            for index in range(self.config.num_hidden_layers)
        ]

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        self.built = True

    def call(self, rows, layout: TokenLayout, training=False, return_probabilities=False):
        states, probabilities = [], []
        for block in self.blocks:
            rows = block(
                rows, layout=layout, training=training, return_probabilities=return_probabilities
            )
            if return_probabilities:
                rows, block_probabilities = rows
                probabilities.append(block_probabilities)
            states.append(rows)
        return states, probabilities

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
