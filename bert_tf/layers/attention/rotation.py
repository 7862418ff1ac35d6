"""The angles of rotary positions, by which attention turns queries and keys."""

import tensorflow as tf


def rotation(
    length: tf.Tensor | int, size: int, base: float, scaling_factor: float = 1.0
) -> tf.Tensor:
    """Returns the cosines and sines of the angles of places, float32 `[length, size]`.

    Angle c of place p is `p * base ** (-2 c / size)`. The angles are computed in float64, because
    in float32 those of place 8,000 would be wrong by 0.0005.

    Args:
        length: How many places there are.
        size: An even number: twice the number of angles.
        base: The base; 10,000 in the paper.
        scaling_factor: f of static NTK scaling: the base is `f * base`, and all angles are divided
            by `f ** (2 / size)`, so that the slowest ones are divided by f.

    Example:
        >>> from bert_tf.layers.attention.rotation import rotation
        >>> rotation(2, 2, 10_000.0).numpy().round(2)
        array([[1.  , 0.  ],
               [0.54, 0.84]], dtype=float32)

    Reference: Su et al. 2021 (arXiv 2104.09864), section 3.4.2, with the pairs of columns of
    `transformers`: c and c + size / 2. Su Jianlin 2023, kexue.fm/archives/9706, for the scaling.
    """
    angles = tf.range(size // 2, dtype=tf.float64)
    frequencies = tf.cast(base * scaling_factor, tf.float64) ** (-2.0 * angles / size)
    frequencies /= scaling_factor ** (2.0 / size)
    places = tf.cast(tf.range(length), tf.float64)
    angles = places[:, tf.newaxis] * frequencies
    return tf.cast(tf.concat([tf.cos(angles), tf.sin(angles)], axis=1), tf.float32)
