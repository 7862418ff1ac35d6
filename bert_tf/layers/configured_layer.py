"""The base of layers whose sizes are those of a `BertConfig`."""

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.config import BertConfig
from bert_tf.layers.dense import Dense
from bert_tf.layers.residual_layer_norm import ResidualLayerNorm


class ConfiguredLayer(QuickLayer):
    """A layer with a `BertConfig`, and methods that make its sublayers.

    Args:
        config: A `BertConfig`, or its `to_dict()`.
        **kwargs: See `keras.layers.Layer`.
    """

    config_class = BertConfig

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else self.config_class(**config)

    def make_dense(self, units: int, name: str, use_bias: bool = True) -> Dense:
        """Returns a dense layer to `units` numbers."""
        options = {"use_bias": use_bias, "dtype": self.dtype_policy, "name": name}
        return Dense(units, self.config.initializer_range, **options)

    def make_layer_norm(self, name: str, dropout_rate: float = 0.0) -> ResidualLayerNorm:
        """Returns a LayerNorm of the sum of its input, after dropout, and a residual."""
        config = self.config
        options = {"use_bias": config.norm_bias and not config.rms_norm, "is_rms": config.rms_norm}
        options |= {"dtype": self.dtype_policy, "name": name}
        return ResidualLayerNorm(config.layer_norm_eps, dropout_rate, **options)

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}
