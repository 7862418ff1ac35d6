"""LayerNorm: in BERT, of the sum of the output and the input of a sublayer (post-LN)."""

import keras

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.layers.dropout import new_seed_generator
from bert_tf.layers.kernels import Epilogue


@keras.saving.register_keras_serializable(package="bert_tf")
class ResidualLayerNorm(QuickLayer):
    """Computes `LayerNorm(residual + dropout(x + bias))` in one pass.

    Args:
        epsilon: Added to the variance. The default is BERT's 1e-12, not Keras's 1e-3.
        dropout_rate: Rate of the dropout of `x + bias` in training.
        seed: Seed of the random stream of the dropout. None draws a seed.
        use_bias: Whether an offset is learned. Without it, `beta` is None, and the offset zero.
        is_rms: Whether it is RMSNorm (Zhang and Sennrich 2019, arXiv 1910.07467), which subtracts
            no mean: `gamma * x / sqrt(mean(x²) + epsilon)`.

    Call arguments:
        x: `[R, H]`.
        residual: `[R, H]` or None.
        bias: `[H]` or None.
        dropout_seed: Seed of the dropout in this call, a scalar int64. None draws a seed.

    Returns:
        `[R, H]`.

    Example:
        >>> ResidualLayerNorm()(tf.ones([3, 8]), residual=tf.zeros([3, 8])).shape
        TensorShape([3, 8])

    Reference: google-research/bert modeling.py, `layer_norm(layer_output + layer_input)`.
    """

    def __init__(
        self,
        epsilon: float = LAYER_NORM_EPSILON,
        dropout_rate: float = 0.0,
        seed: int | None = None,
        use_bias: bool = True,
        is_rms: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.dropout_rate = dropout_rate
        self.seed = seed
        self.use_bias = use_bias
        self.is_rms = is_rms
        self.gamma = self.beta = None  # until it is built
        # Keras tracks seed generators that are attributes and saves their state with the layer.
        self.seed_generator = new_seed_generator(seed) if dropout_rate else None

    def build(self, input_shape):
        self.gamma = self.add_weight(name="gamma", shape=[input_shape[-1]], initializer="ones")
        size = input_shape[-1]
        if self.use_bias:
            self.beta = self.add_weight(name="beta", shape=[size], initializer="zeros")
        self.built = True

    def call(self, x, residual=None, bias=None, training=False, dropout_seed=None):
        options = {"training": training, "dropout_seed": dropout_seed}
        epilogue = Epilogue(bias=bias, layer_norm=self, residual=residual, **options)
        return epilogue.apply_unfused(x)
