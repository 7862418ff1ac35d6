"""Transformer layers in which the sentences of a window attend to each other.

Glossary: `B` windows, `T` tokens of a window, `S` sentences of all windows.
"""

import keras
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.configured_layer import ConfiguredLayer
from bert_tf.layers.embeddings import sinusoidal_positions
from bert_tf.layers.encoder_block import BertEncoderBlock
from bert_tf.layers.pooling import first_columns


def sentence_starts(token_ids: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns which tokens are the `[CLS]` of a sentence, those like the first: bool `[B, T]`.

    `token_ids` are int32 `[B, T]`, `padding_mask` bool `[B, T]`, True for real tokens.

    Example:
        >>> token_ids = tf.constant([[2, 7, 3, 2, 8, 3, 0]])
        >>> sentence_starts(token_ids, token_ids > 0).numpy().astype(int)
        array([[1, 0, 0, 1, 0, 0, 0]])
    """
    first = first_columns(padding_mask)[:, tf.newaxis]  # [B, 1]
    return padding_mask & tf.equal(token_ids, tf.gather(token_ids, first, batch_dims=1))


@keras.saving.register_keras_serializable(package="bert_tf")
class SentenceLayers(ConfiguredLayer):
    """Encoder blocks on the `[CLS]` vectors of the sentences, with sinusoidal positions.

    A sentence attends to all sentences of its window, and to no other token.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        num_layers: The number of blocks, at least 1.

    Call arguments:
        states: `[B, T, H]`, the outputs of BERT.
        starts: bool `[B, T]`, True for the `[CLS]` of a sentence.
        packed: Whether to compute on these tokens only, not on all `B * T`.

    Returns:
        `[B, T, H]`: a vector at each `[CLS]` of a sentence, zeros elsewhere.

    Example:
        >>> config = bert_tf.BertConfig(hidden_size=32, num_attention_heads=4)
        >>> layers = SentenceLayers(config, num_layers=2)
        >>> layers(tf.ones([1, 3, 32]), starts=tf.constant([[True, False, True]])).shape
        TensorShape([1, 3, 32])

    Reference: Liu and Lapata 2019 (arXiv 1908.08345), section 3.1, equations 2 and 3.
    """

    def __init__(self, config: BertConfig | dict, num_layers: int, **kwargs):
        super().__init__(config, **kwargs)
        self.num_layers = num_layers
        # Not `layer_{index}`, which learning rates by layer take for a layer of the encoder.
        self.blocks = [
            BertEncoderBlock(self.config, dtype=self.dtype_policy, name=f"sentence_layer_{index}")
            for index in range(num_layers)
        ]

    def build(self, input_shape=None):
        for block in self.blocks:
            block.build()
        self.built = True

    def call(self, states, starts, packed=False, training=False):
        layout = TokenLayout.packed(starts) if packed else TokenLayout.padded(starts)
        numbers = tf.math.cumsum(tf.cast(starts, tf.int32), axis=1, exclusive=True)  # [B, T]
        table = sinusoidal_positions(self.config.max_position_embeddings, self.config.hidden_size)
        positions = tf.gather(table, layout.to_rows(numbers))  # [B, T] -> [S, H]
        rows = layout.to_rows(states)  # [B, T, H] -> [S, H]
        rows += tf.cast(positions, rows.dtype)
        for block in self.blocks:
            rows = block(rows, layout=layout, training=training)
        return layout.to_batch(rows)  # [S, H] -> [B, T, H]
