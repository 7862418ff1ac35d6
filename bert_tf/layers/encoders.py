"""The encoder of a configuration: BERT's, or one of those that BERT is compared with."""

import keras

from bert_tf.config import LSTM, NO_ENCODER, TRANSFORMER, WINDOW, BertConfig
from bert_tf.layers.attention_free_encoder import AttentionFreeEncoder
from bert_tf.layers.encoder import BertEncoder
from bert_tf.layers.lstm_encoder import LstmEncoder
from bert_tf.layers.window_encoder import WindowEncoder

_CLASSES = {
    TRANSFORMER: BertEncoder,
    NO_ENCODER: AttentionFreeEncoder,
    WINDOW: WindowEncoder,
    LSTM: LstmEncoder,
}


def make_encoder(
    config: BertConfig, gradient_checkpointing: bool = False, **options
) -> keras.layers.Layer:
    """Returns the encoder that `config.encoder_type` names.

    Args:
        config: A `BertConfig`.
        gradient_checkpointing: As in `BertEncoder`.
        **options: Further arguments of the layer, such as `dtype` and `name`.

    Raises:
        UserError: If `gradient_checkpointing` is True for an encoder without attention.

    Example:
        >>> from bert_tf.layers.encoders import make_encoder
        >>> sizes = {"hidden_size": 8, "num_attention_heads": 1, "num_hidden_layers": 2}
        >>> config = bert_tf.BertConfig(**sizes, encoder_type="lstm")
        >>> len(make_encoder(config).blocks)
        2
    """
    return _CLASSES[config.encoder_type](config, gradient_checkpointing, **options)
