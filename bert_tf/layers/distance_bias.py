"""What attention adds to the score of a query and a key for their distance (T5, MPNet)."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.layers.initial_weights import truncated_normal

MAX_DISTANCE = 128  # all distances from here on are in the last bucket


@keras.saving.register_keras_serializable(package="bert_tf")
class DistanceBias(keras.layers.Layer):
    """A number for each head and bucket of distances, which all blocks of an encoder share.

    Half of the `config.relative_attention_num_buckets` buckets are for keys after the query. In
    each half, the first buckets hold one distance each, and the others ever more of them.

    Args:
        config: A `BertConfig`, or its `to_dict()`.

    Example:
        >>> config = bert_tf.BertConfig(
        ...     hidden_size=32, num_attention_heads=4, relative_attention_num_buckets=32
        ... )
        >>> layer = bert_tf.layers.DistanceBias(config)
        >>> layer.build()
        >>> layer.of_distances().shape
        TensorShape([4, 257])

    Reference: Raffel et al. 2020 (arXiv 1910.10683), section 2.1; `transformers`,
    `MPNetEncoder.compute_position_bias`.
    """

    def __init__(self, config: BertConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = config if isinstance(config, BertConfig) else BertConfig(**config)

    def build(self, input_shape=None):
        config = self.config
        self.biases = self.add_weight(
            name="biases",
            shape=[config.relative_attention_num_buckets, config.num_attention_heads],
            initializer=truncated_normal(config.initializer_range),
            autocast=False,
        )
        self.built = True

    def of_distances(self) -> tf.Tensor:
        """Returns the `distance_bias` of `ops.varlen_attention`: float32 `[N, 2 M + 1]`."""
        distances = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
        buckets = _buckets(distances, self.config.relative_attention_num_buckets)
        biases = tf.gather(tf.convert_to_tensor(self.biases), buckets)  # [2 M + 1, N]
        return tf.transpose(tf.cast(biases, tf.float32))

    def get_config(self):
        return {**super().get_config(), "config": self.config.to_dict()}


def _buckets(distances: np.ndarray, num_buckets: int) -> np.ndarray:
    """Returns the bucket of each distance, position of the query minus that of the key."""
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distances)
    # In float32, in which `transformers` rounds down.
    logarithm = np.log(np.maximum(size, exact).astype(np.float32) / np.float32(exact))
    share = logarithm / np.float32(np.log(MAX_DISTANCE / exact))
    far = exact + (share * np.float32(half - exact)).astype(np.int64)
    return np.where(size < exact, size, np.minimum(far, half - 1)) + half * (distances < 0)
