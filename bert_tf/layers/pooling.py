"""Layers that reduce several vectors to one: those of a sequence, or those of the layers."""

import keras
import tensorflow as tf

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.config import LAYER_NORM_EPSILON
from bert_tf.errors import require_one_of
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.dense import Dense
from bert_tf.layers.kernels import Epilogue


def first_columns(padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the column of the first real token of each row, int32 `[B]`; else the last column.

    `padding_mask` is bool `[B, T]`, True for real tokens.
    """
    length = tf.shape(padding_mask)[1]
    columns = tf.where(padding_mask, tf.range(length), length - 1)  # [B, T]
    return tf.reduce_min(columns, axis=1)


def last_columns(padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the column of the last real token of each row, int32 `[B]`; else 0.

    `padding_mask` is bool `[B, T]`, True for real tokens.
    """
    columns = tf.range(tf.shape(padding_mask)[1])
    return tf.reduce_max(tf.where(padding_mask, columns, 0), axis=1)


def first_token(sequence_output: tf.Tensor, padding_mask: tf.Tensor) -> tf.Tensor:
    """Returns the vector of the first real token of each sequence, `[B, H]`; else zeros.

    Args:
        sequence_output: `[B, T, H]`, zeros for padding, which may be anywhere.
        padding_mask: bool `[B, T]`, True for real tokens.

    Example:
        >>> from bert_tf.layers.pooling import first_token
        >>> vectors = tf.constant([[[0.0], [3.0], [9.0]]])
        >>> first_token(vectors, tf.constant([[False, True, True]])).numpy()
        array([[3.]], dtype=float32)
    """
    return tf.gather(sequence_output, first_columns(padding_mask), batch_dims=1)


@keras.saving.register_keras_serializable(package="bert_tf")
class BertPooler(QuickLayer):
    """A dense layer and an activation on the vector of the first token.

    Args:
        hidden_size: H.
        initializer_range: Standard deviation of the truncated normal initializer of the kernel.
        activation: "tanh", "relu" or "gelu" (erf).
        layer_norm: A layer that follows the activation, or None.
        use_bias: Whether the dense layer has a bias.

    Call arguments:
        first_token: `[B, H]`, the vectors of the first tokens.

    Returns:
        `[B, H]`.

    Example:
        >>> first_vectors = tf.ones([2, 8])
        >>> bert_tf.layers.BertPooler(hidden_size=8)(first_vectors).shape
        TensorShape([2, 8])

    Reference: google-research/bert modeling.py, "pooler".
    """

    def __init__(
        self,
        hidden_size: int,
        initializer_range: float = 0.02,
        activation: str = "tanh",
        layer_norm: keras.layers.Layer | None = None,
        use_bias: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.hidden_size = hidden_size
        self.initializer_range = initializer_range
        self.activation = activation
        self.layer_norm = layer_norm
        self.use_bias = use_bias
        options = {"dtype": self.dtype_policy, "name": "dense"}
        self.dense = Dense(hidden_size, initializer_range, use_bias, **options)
        self.is_missing = False  # whether the checkpoint has no pooler

    def build(self, input_shape=None):
        self.dense.build([None, self.hidden_size])
        if self.layer_norm is not None:
            self.layer_norm.build([None, self.hidden_size])
        self.built = True

    def call(self, first_token):
        dense = self.dense.apply(first_token, Epilogue())
        pooled = ACTIVATIONS[self.activation].function(dense)
        return pooled if self.layer_norm is None else self.layer_norm(pooled)


@keras.saving.register_keras_serializable(package="bert_tf")
class SequencePooling(QuickLayer):
    """The mean, the maximum or both over the real tokens of each sequence, or the last of them.

    Args:
        mode: "mean", "max", "mean_max" or "last".

    Call arguments:
        sequence_output: `[B, T, H]`.
        padding_mask: bool `[B, T]`.

    Returns:
        `[B, H]`, or `[B, 2H]` for "mean_max", the mean first. The result for a sequence without
        tokens is zeros.

    Raises:
        UserError: If `mode` is something else.

    Example:
        >>> vectors = tf.constant([[[1.0], [3.0], [9.0]]])
        >>> mean = bert_tf.layers.SequencePooling("mean")
        >>> mean(vectors, tf.constant([[True, True, False]])).numpy()
        array([[2.]], dtype=float32)
    """

    def __init__(self, mode: str, **kwargs):
        super().__init__(**kwargs)
        require_one_of("mode", mode, ("mean", "max", "mean_max", "last"))
        self.mode = mode
        self.built = True

    def compute_output_shape(self, input_shape):
        width = input_shape[-1] * (2 if self.mode == "mean_max" else 1)
        return (input_shape[0], width)

    def call(self, sequence_output, padding_mask):
        if self.mode == "last":
            last = last_columns(padding_mask)  # [B, T] -> [B]
            has_token = tf.reduce_any(padding_mask, axis=1, keepdims=True)  # [B, 1]
            vectors = tf.gather(sequence_output, last, batch_dims=1)  # [B, T, H] -> [B, H]
            return tf.where(has_token, vectors, tf.zeros([], vectors.dtype))
        pooled = []
        real = padding_mask[:, :, tf.newaxis]  # [B, T, 1]
        if self.mode in ("mean", "mean_max"):
            values = tf.cast(sequence_output, tf.float32)
            total = tf.reduce_sum(tf.where(real, values, 0.0), axis=1)  # [B, T, H] -> [B, H]
            count = tf.reduce_sum(tf.cast(real, tf.float32), axis=1)  # [B, 1]
            pooled.append(tf.cast(tf.math.divide_no_nan(total, count), sequence_output.dtype))
        if self.mode in ("max", "mean_max"):
            lowest = tf.constant(sequence_output.dtype.min, sequence_output.dtype)
            largest = tf.reduce_max(tf.where(real, sequence_output, lowest), axis=1)  # [B, H]
            has_token = tf.reduce_any(padding_mask, axis=1, keepdims=True)  # [B, 1]
            pooled.append(tf.where(has_token, largest, tf.zeros([], largest.dtype)))
        return tf.concat(pooled, axis=-1)


@keras.saving.register_keras_serializable(package="bert_tf")
class ScalarMix(QuickLayer):
    """Computes `gamma * Σ softmax(scalars)_k * states_k`, with one learned weight per layer.

    Args:
        layer_norm: Whether to first normalize every vector to mean 0 and variance 1, so that a
            layer with large values does not dominate the sum.

    Call arguments:
        states: A list of K tensors `[..., H]`: all or some `hidden_states` of a backbone.

    Returns:
        `[..., H]`.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("minilm/")
        >>> tokens = {"token_ids": tf.constant([[101, 7592, 2088, 102]])}
        >>> states = backbone(tokens, output_hidden_states=True)["hidden_states"]
        >>> len(states), ScalarMix()(states).shape  # K times [B, T, H]
        (7, TensorShape([1, 4, 384]))

    Reference: Peters et al. 2018 (ELMo, arXiv 1802.05365), equation 1.
    """

    def __init__(self, layer_norm: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.layer_norm = layer_norm

    def build(self, input_shape):
        self.scalars = self.add_weight(
            name="scalars", shape=[len(input_shape)], initializer="zeros"
        )
        self.gamma = self.add_weight(name="gamma", shape=[1], initializer="ones")
        self.built = True

    def call(self, states):
        shares = tf.unstack(tf.nn.softmax(tf.convert_to_tensor(self.scalars)))
        if self.layer_norm:
            states = [_normalized(state) for state in states]
        mixed = tf.add_n([share * state for share, state in zip(shares, states, strict=True)])
        return tf.convert_to_tensor(self.gamma) * mixed

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[0])


@keras.saving.register_keras_serializable(package="bert_tf")
class LayerMean(QuickLayer):
    """Computes `Σ layer_weights_k * states_k / Σ layer_weights`, a mean of layers that is learned.

    Before training, all weights are 1.

    Args:
        layer_start: The first of the states that counts, 0 for the first one.

    Call arguments:
        states: A list of K tensors `[..., H]`: the `hidden_states` of a backbone.

    Returns:
        `[..., H]`.

    Example:
        >>> states = [tf.constant([[0.0]]), tf.constant([[2.0]]), tf.constant([[4.0]])]
        >>> bert_tf.layers.LayerMean(layer_start=1)(states).numpy()
        array([[3.]], dtype=float32)

    Reference: sentence-transformers, `WeightedLayerPooling`.
    """

    def __init__(self, layer_start: int = 0, **kwargs):
        super().__init__(**kwargs)
        self.layer_start = layer_start

    def build(self, input_shape):
        count = len(input_shape) - self.layer_start
        self.layer_weights = self.add_weight(
            name="layer_weights", shape=[count], initializer="ones"
        )
        self.built = True

    def call(self, states):
        weights = tf.convert_to_tensor(self.layer_weights)
        shares = tf.unstack(weights / tf.reduce_sum(weights))
        counted = states[self.layer_start :]
        return tf.add_n([share * state for share, state in zip(shares, counted, strict=True)])

    def compute_output_shape(self, input_shape):
        return tuple(input_shape[0])


def _normalized(state):
    """Normalizes `[..., H]` to mean 0 and variance 1 over H, in float32.

    Zeros, as for padding, remain zeros.
    """
    values = tf.cast(state, tf.float32)
    mean, variance = tf.nn.moments(values, axes=[-1], keepdims=True)
    return tf.cast((values - mean) * tf.math.rsqrt(variance + LAYER_NORM_EPSILON), state.dtype)
