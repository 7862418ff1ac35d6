"""What attention adds to the score of a query and a key for their distance (T5, MPNet)."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.layers.embeddings import lookup

MAX_DISTANCE = 128  # all distances from here on are in the last bucket


def biases_by_distance(biases: keras.Variable) -> tf.Tensor:
    """Returns the `distance_bias` of `ops.varlen_attention`: float32 `[N, 2 M + 1]`.

    Half of the buckets are for keys after the query. In each half, the first buckets hold one
    distance each, and the others ever more of them.

    Args:
        biases: A number for each bucket of distances and head, `[buckets, N]`.

    Reference: Raffel et al. 2020 (arXiv 1910.10683), section 2.1; `transformers`,
    `MPNetEncoder.compute_position_bias`.
    """
    distances = np.arange(-MAX_DISTANCE, MAX_DISTANCE + 1)
    buckets = _buckets(distances, biases.shape[0])
    of_distances = lookup(tf.convert_to_tensor(biases), buckets)  # [2 M + 1, N]
    return tf.transpose(tf.cast(of_distances, tf.float32))


def _buckets(distances: np.ndarray, num_buckets: int) -> np.ndarray:
    """Returns the bucket of each distance, position of the query minus that of the key."""
    half = num_buckets // 2
    exact = half // 2
    size = np.abs(distances)
    # This is float32, because `transformers` rounds down in it.
    logarithm = np.log(np.maximum(size, exact).astype(np.float32) / np.float32(exact))
    share = logarithm / np.float32(np.log(MAX_DISTANCE / exact))
    far = exact + (share * np.float32(half - exact)).astype(np.int64)
    return np.where(size < exact, size, np.minimum(far, half - 1)) + half * (distances < 0)
