"""The encoder of the neural probabilistic language model: a dense layer on the last few words.

Glossary: `n` is `config.context_size`, `C = n H` the width of a context.
"""

import keras
import tensorflow as tf

from bert_tf.layers.attention.token_layout import TokenLayout, real_tokens_first
from bert_tf.layers.attention_free_encoder import AttentionFreeEncoder
from bert_tf.layers.dropout import Dropout


@keras.saving.register_keras_serializable(package="bert_tf")
class WindowEncoder(AttentionFreeEncoder):
    """One dense layer and tanh on the vectors of a token and of the `n - 1` tokens before it.

    There are zeros before the first token of a sequence. A token does not see those after it.

    Args:
        config: A `BertConfig` with `encoder_type="window"`, or its `to_dict()`.
        gradient_checkpointing: False.

    Call arguments, Returns, Raises: as in `AttentionFreeEncoder`.

    Example:
        >>> from bert_tf.layers.attention.token_layout import TokenLayout
        >>> sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
        >>> config = bert_tf.BertConfig(**sizes, encoder_type="window", context_size=3)
        >>> layout = TokenLayout.packed(tf.constant([[True, True, False]]))
        >>> states = bert_tf.layers.WindowEncoder(config)(tf.ones([2, 32]), layout=layout)
        >>> [state.shape for state in states]
        [TensorShape([2, 32]), TensorShape([2, 32])]

    Reference: Bengio et al. 2003, "A Neural Probabilistic Language Model", equation 1, without the
    output layer.
    """

    def __init__(self, config, gradient_checkpointing: bool = False, **kwargs):
        super().__init__(config, gradient_checkpointing, **kwargs)
        policy, hidden_size = self.dtype_policy, self.config.hidden_size
        dense = keras.layers.Dense(hidden_size, "tanh", dtype=policy, name="layer_0")
        self.blocks = [dense]
        self.dropout = Dropout(self.config.hidden_dropout_prob, dtype=policy, name="dropout")

    def build(self, input_shape=None):
        self.blocks[0].build([None, self.config.context_size * self.config.hidden_size])
        self.built = True

    def encoded(self, rows, layout, training):
        states = self.blocks[0](self.contexts(rows, layout))  # [R, C] -> [R, H]
        return [self.dropout(states, training=training)]

    def contexts(self, rows: tf.Tensor, layout: TokenLayout) -> tf.Tensor:
        """Returns the vectors that each token is computed from: `[R, H]` -> `[R, C]`.

        The vector of the token itself is the first, that of the token before it the second.
        """
        batch = layout.to_batch(rows)  # [R, H] -> [B, T, H]
        # Padding may be between tokens: the real tokens of a row come first, in their order.
        order = real_tokens_first(layout.padding_mask)  # [B, T]
        batch = tf.gather(batch, order, batch_dims=1)
        length = tf.shape(batch)[1]
        shifted = [
            tf.pad(batch, [[0, 0], [offset, 0], [0, 0]])[:, :length]
            for offset in range(self.config.context_size)
        ]
        contexts = tf.concat(shifted, axis=-1)  # [B, T, C]
        contexts = tf.gather(contexts, tf.argsort(order, axis=1), batch_dims=1)
        contexts.set_shape([None, None, self.config.context_size * self.config.hidden_size])
        return layout.to_rows(contexts)  # -> [R, C]
