"""The encoder of the neural probabilistic language model: a dense layer on the last few words.

Glossary: `n` is `config.context_size`, `C = n H` the width of a context.
"""

import keras
import tensorflow as tf

from bert_tf.layers.attention.token_layout import real_tokens_first
from bert_tf.layers.dropout import Dropout
from research.baselines.config import BaselineConfig
from research.baselines.encoder import BaselineEncoder


@keras.saving.register_keras_serializable(package="bert_tf")
class WindowEncoder(BaselineEncoder):
    """One dense layer and tanh on the vectors of a token and of the `n - 1` tokens before it.

    There are zeros before the first token of a sequence. A token does not see those after it.

    Args:
        config: A `BaselineConfig` of the kind "nnlm", or its `to_dict()`.

    Call arguments, Returns: see `BaselineEncoder`.

    Example:
        >>> from research.baselines import BaselineConfig
        >>> from research.baselines.window_encoder import WindowEncoder
        >>> sizes = {"hidden_size": 32, "num_hidden_layers": 1, "context_size": 3}
        >>> encoder = WindowEncoder(BaselineConfig(kind="nnlm", **sizes))
        >>> states = encoder(tf.ones([1, 3, 32]), tf.constant([[True, True, False]]))
        >>> [state.shape for state in states]
        [TensorShape([1, 3, 32])]

    Reference: Bengio et al. 2003, "A Neural Probabilistic Language Model", equation 1, without the
    output layer.
    """

    def __init__(self, config: BaselineConfig | dict, **kwargs):
        super().__init__(config, **kwargs)
        policy, hidden_size = self.dtype_policy, self.config.hidden_size
        dense = keras.layers.Dense(hidden_size, "tanh", dtype=policy, name="layer_0")
        self.blocks = [dense]
        self.dropout = Dropout(self.config.hidden_dropout_prob, dtype=policy, name="dropout")

    def build(self, input_shape=None):
        self.blocks[0].build([None, None, self.config.context_size * self.config.hidden_size])
        self.built = True

    def call(self, words, padding_mask, training=False):
        states = self.blocks[0](self.contexts(words, padding_mask))  # [B, T, C] -> [B, T, H]
        return [self.dropout(states, training=training)]

    def contexts(self, words: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
        """Returns the vectors that each token is computed from: `[B, T, H]` -> `[B, T, C]`.

        The vector of the token itself is the first, that of the token before it the second.
        """
        # Padding may be between tokens: the real tokens of a row come first, in their order.
        order = real_tokens_first(padding_mask)  # [B, T]
        words = tf.gather(words, order, batch_dims=1)
        length = tf.shape(words)[1]
        shifted = [
            tf.pad(words, [[0, 0], [offset, 0], [0, 0]])[:, :length]
            for offset in range(self.config.context_size)
        ]
        contexts = tf.concat(shifted, axis=-1)  # [B, T, C]
        contexts = tf.gather(contexts, tf.argsort(order, axis=1), batch_dims=1)
        contexts.set_shape([None, None, self.config.context_size * self.config.hidden_size])
        return contexts
