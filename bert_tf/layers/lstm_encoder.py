"""The encoder of ELMo: layers of LSTMs in both directions."""

import keras
import tensorflow as tf

from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.layers.attention_free_encoder import AttentionFreeEncoder
from bert_tf.layers.dropout import Dropout
from bert_tf.layers.lstm_block import LstmBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class LstmEncoder(AttentionFreeEncoder):
    """`L` layers of two LSTMs, one in each direction, which see nothing of each other.

    The first half of each vector is of the forward direction, which has seen the token and those
    before it; the second half of the backward direction. As in ELMo, each layer above the first
    adds its input. Unlike in ELMo, the projection is not part of the recurrence, and the vectors of
    words come from a table instead of convolutions over characters.

    Args:
        config: A `BertConfig` with `encoder_type="lstm"`, or its `to_dict()`.
        gradient_checkpointing: False.

    Call arguments, Returns, Raises: as in `AttentionFreeEncoder`.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
        >>> config = bert_tf.BertConfig(**sizes, encoder_type="lstm", intermediate_size=64)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> states = bert_tf.layers.LstmEncoder(config)(tf.ones([2, 32]), layout=layout)
        >>> [state.shape for state in states]
        [TensorShape([2, 32]), TensorShape([2, 32]), TensorShape([2, 32])]

    Reference: Peters et al. 2018 (ELMo, arXiv 1802.05365), section 3; allenai/bilm-tf training.py.
    """

    sees_later_tokens = True

    def __init__(self, config, gradient_checkpointing: bool = False, **kwargs):
        super().__init__(config, gradient_checkpointing, **kwargs)
        policy = self.dtype_policy
        self.blocks = [
            LstmBlock(self.config, index > 0, dtype=policy, name=f"layer_{index}")
            for index in range(self.config.num_hidden_layers)
        ]
        self.dropout = Dropout(self.config.hidden_dropout_prob, dtype=policy, name="dropout")

    def encoded(self, rows, layout: TokenLayout, training):
        batch = layout.to_batch(rows)  # [R, H] -> [B, T, H]
        directions = [batch, batch]
        states = []
        for block in self.blocks:
            directions = block(directions, layout.padding_mask)  # twice [B, T, H / 2]
            directions = [self.dropout(values, training=training) for values in directions]
            states.append(layout.to_rows(tf.concat(directions, axis=-1)))  # -> [R, H]
        return states
