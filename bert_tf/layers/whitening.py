"""Whitening: a linear map after which vectors point in all directions alike."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError

# A direction whose variance is below this share of the largest is noise: 1 / sqrt blows it up.
_SMALLEST_VARIANCE = 1e-9


@keras.saving.register_keras_serializable(package="bert_tf")
class Whitening(keras.layers.Layer):
    """`(x - mean) W` on `[B, D]`: mean zero and unit covariance on the vectors it was fitted to.

    BERT's sentence vectors crowd in a narrow cone, so that all cosines are large; whitened, cosine
    tells more. Of the principal directions the first `units` are kept. Not trained by gradients.

    Args:
        units: Size of the whitened vectors, at most D.

    Returns:
        float32 `[B, units]`.

    Example:
        >>> vectors = np.random.default_rng(0).normal(5.0, 2.0, size=[100, 8]).astype("float32")
        >>> whitening = bert_tf.layers.Whitening(units=3)
        >>> whitening.build([None, 8])
        >>> whitening.fit(vectors)
        >>> np.cov(whitening(vectors), rowvar=False, bias=True).round(3) + 0.0
        array([[1., 0., 0.],
               [0., 1., 0.],
               [0., 0., 1.]])

    Reference: Su et al. 2021 (arXiv 2103.15316).
    """

    def __init__(self, units: int, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.units = units

    def build(self, input_shape):
        if not 1 <= self.units <= input_shape[-1]:
            raise UserError(
                f"The size of whitened vectors must be in [1, {input_shape[-1]}]. "
                f"Received: {self.units}"
            )
        self.kernel = self.add_weight(
            name="kernel",
            shape=[input_shape[-1], self.units],
            initializer="zeros",
            dtype="float32",
            autocast=False,
            trainable=False,
        )
        self.bias = self.add_weight(
            name="bias",
            shape=[self.units],
            initializer="zeros",
            dtype="float32",
            autocast=False,
            trainable=False,
        )
        self.built = True

    def call(self, vectors):
        product = tf.matmul(tf.cast(vectors, tf.float32), tf.convert_to_tensor(self.kernel))
        return product + tf.convert_to_tensor(self.bias)

    def fit(self, vectors: np.ndarray) -> None:
        """Computes mean and map in float64 and assigns them.

        Args:
            vectors: `[n, D]`, of many sentences.

        Raises:
            UserError: If they vary in fewer than `units` directions.
        """
        mean, variances, directions = principal_directions(vectors)
        if len(variances) < self.units:
            raise UserError(
                f"Vectors that vary in {self.units} directions were expected. Received: "
                f"{len(vectors)} vectors that vary in {len(variances)}. Fit whitening to more "
                "sentences, or to a smaller size."
            )
        kernel = directions[:, : self.units] / np.sqrt(variances[: self.units])  # [D, units]
        self.kernel.assign(kernel.astype(np.float32))
        self.bias.assign((-mean @ kernel).astype(np.float32))

    def get_config(self):
        config = {**super().get_config(), "units": self.units}
        del config["trainable"]
        return config


def principal_directions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The directions in which vectors vary, the largest variance first.

    They may be fewer than D: what comes out of a LayerNorm lies in a hyperplane, and so does the
    mean over tokens.

    Args:
        vectors: `[n, D]`.

    Returns:
        In float64 the mean `[D]`, the variances `[d]` and the unit directions `[D, d]`.
    """
    vectors = np.asarray(vectors, np.float64)
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(vectors))  # ascending
    variances, directions = variances[::-1], directions[:, ::-1]
    kept = variances > _SMALLEST_VARIANCE * max(variances[0], 0.0)
    return mean, variances[kept], directions[:, kept]
