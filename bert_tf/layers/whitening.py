"""Whitening: a linear map after which all directions of the vectors have the same variance."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.keras_compat import QuickLayer
from bert_tf.errors import UserError, require

# Directions with a variance below this fraction of the largest are noise, which 1 / sqrt amplifies.
_SMALLEST_VARIANCE = 1e-9


@keras.saving.register_keras_serializable(package="bert_tf")
class Whitening(QuickLayer):
    """Computes `(x - mean) W`, with mean zero and unit covariance on the vectors of `fit`.

    BERT's sentence vectors lie in a narrow cone, so that all cosine similarities are large.
    Whitened vectors make cosine similarity more informative. The first `units` principal directions
    are kept. The layer is not trained by gradients.

    Args:
        units: Size of the whitened vectors, at most D.

    Call arguments:
        vectors: `[B, D]`.

    Returns:
        float32 `[B, units]`.

    Raises:
        UserError: If `units` is not in [1, D].

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
        rule = f"must be in [1, {input_shape[-1]}], the size of the vectors"
        require(1 <= self.units <= input_shape[-1], rule, UserError, units=self.units)
        options = {"initializer": "zeros", "dtype": "float32", "autocast": False}
        self.kernel = self.add_weight(
            name="kernel", shape=[input_shape[-1], self.units], trainable=False, **options
        )
        self.bias = self.add_weight(name="bias", shape=[self.units], trainable=False, **options)
        self.built = True

    def call(self, vectors):
        product = tf.matmul(tf.cast(vectors, tf.float32), tf.convert_to_tensor(self.kernel))
        return product + tf.convert_to_tensor(self.bias)

    def fit(self, vectors: np.ndarray) -> None:
        """Computes the mean and the map in float64 and assigns them.

        Args:
            vectors: `[n, D]`, the vectors of many sentences.

        Raises:
            UserError: If the vectors vary in fewer than `units` directions.
        """
        mean, variances, directions = principal_directions(vectors)
        if len(variances) < self.units:
            raise UserError(
                f"`vectors` must vary in at least {self.units} directions. Received: "
                f"{len(vectors)} vectors that vary in {len(variances)} directions. Fit whitening "
                "to more sentences, or choose a smaller size."
            )
        kernel = directions[:, : self.units] / np.sqrt(variances[: self.units])  # [D, units]
        self.kernel.assign(kernel.astype(np.float32))
        self.bias.assign((-mean @ kernel).astype(np.float32))

    def get_config(self):
        config = {**super().get_config(), "units": self.units}
        del config["trainable"]
        return config


def principal_directions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the principal directions of vectors, those with the largest variance first.

    There may be fewer than D directions: the outputs of a LayerNorm lie in a hyperplane, and so do
    their means over tokens.

    Args:
        vectors: `[n, D]`.

    Returns:
        The mean `[D]`, the variances `[d]` and the unit directions `[D, d]`, in float64.
    """
    vectors = np.asarray(vectors, np.float64)
    mean = vectors.mean(axis=0)
    centred = vectors - mean
    variances, directions = np.linalg.eigh(centred.T @ centred / len(vectors))  # ascending
    variances, directions = variances[::-1], directions[:, ::-1]
    kept = variances > _SMALLEST_VARIANCE * max(variances[0], 0.0)
    return mean, variances[kept], directions[:, kept]
