"""The encoder of ELMo: layers of LSTMs in both directions."""

import keras
import tensorflow as tf

from bert_tf.layers.dropout import Dropout
from research.baselines.config import BaselineConfig
from research.baselines.encoder import BaselineEncoder
from research.baselines.lstm_block import LstmBlock


@keras.saving.register_keras_serializable(package="bert_tf")
class LstmEncoder(BaselineEncoder):
    """`L` layers of two LSTMs, one in each direction, which see nothing of each other.

    The first half of each vector is of the forward direction, which has seen the token and those
    before it; the second half of the backward direction. As in ELMo, each layer above the first
    adds its input. Unlike in ELMo, the projection is not part of the recurrence, and the vectors of
    words come from a table instead of convolutions over characters.

    Args:
        config: A `BaselineConfig` of the kind "elmo", or its `to_dict()`.

    Call arguments, Returns: see `BaselineEncoder`.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> from research.baselines.lstm_encoder import LstmEncoder
        >>> sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64}
        >>> encoder = LstmEncoder(BaselineConfig(kind="elmo", **sizes))
        >>> states = encoder(tf.ones([1, 3, 32]), tf.constant([[True, True, False]]))
        >>> [state.shape for state in states]
        [TensorShape([1, 3, 32]), TensorShape([1, 3, 32])]

    Reference: Peters et al. 2018 (ELMo, arXiv 1802.05365), section 3; allenai/bilm-tf training.py.
    """

    def __init__(self, config: BaselineConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        self.blocks = [
            LstmBlock(self.config, index > 0, dtype=policy, name=f"layer_{index}")
            for index in range(self.config.num_hidden_layers)
        ]
        self.dropout = Dropout(self.config.hidden_dropout_prob, dtype=policy, name="dropout")

    def call(self, words, padding_mask, training=False):
        directions = [words, words]
        states = []
        for block in self.blocks:
            directions = block(directions, padding_mask)  # twice [B, T, H / 2]
            directions = [self.dropout(values, training=training) for values in directions]
            states.append(tf.concat(directions, axis=-1))  # -> [B, T, H]
        return states
