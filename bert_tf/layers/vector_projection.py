"""Layers on the vectors of sentences: those of sentence-transformers, and whitening.

Whitening is a linear map after which all directions of the vectors have the same variance.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base.json_schema import FLAG, check, integer, list_of, may_lack, object_of, one_of
from bert_tf.base.keras_compat import QuickLayer
from bert_tf.errors import UserError, require, user_error
from bert_tf.layers.activation import ACTIVATIONS

DENSE, LAYER_NORM = "dense", "layer_norm"
LAYER_NORM_EPSILON = 1e-5  # torch.nn.LayerNorm
STEPS = list_of(
    object_of(
        {
            "type": one_of(DENSE, LAYER_NORM),
            "units": may_lack(integer(least=1)),
            "activation": may_lack(
                one_of(*(name for name, each in ACTIVATIONS.items() if each.torch_name))
            ),
            "use_bias": may_lack(FLAG),
            "use_residual": may_lack(FLAG),
        },
        only=True,
    ),
    most=20,
)


@keras.saving.register_keras_serializable(package="bert_tf")
class VectorProjection(QuickLayer):
    """Applies dense layers and LayerNorms in turn.

    Args:
        steps: Dictionaries: `{"type": "dense", "units": 512, "activation": "tanh", "use_bias":
            True, "use_residual": False}`, of which all but `units` may be missing (the activation
            is "linear" then), or `{"type": "layer_norm"}`. With `use_residual` a dense layer adds
            its input to its output, by a kernel without bias where their sizes differ.
        initializer_range: Standard deviation of the initial kernels.

    Call arguments:
        vectors: `[B, D]`.

    Returns:
        float32 `[B, units]`, of the last dense layer.

    Raises:
        UserError: If a step is something else.

    Example:
        >>> layer = bert_tf.layers.VectorProjection([{"type": "dense", "units": 3}])
        >>> layer(np.ones([2, 8], np.float32)).shape
        TensorShape([2, 3])

    Reference: sentence-transformers, the modules `Dense` and `LayerNorm`.
    """

    def __init__(
        self, steps: Sequence[Mapping[str, Any]], initializer_range: float = 0.02, **kwargs
    ):
        super().__init__(**{**kwargs, "dtype": "float32"})
        check(steps, STEPS, "the projection of vectors", UserError)
        steps = [dict(step) for step in steps]
        wrong = [step for step in steps if (step["type"] == DENSE) != ("units" in step)]
        if wrong:
            expected = "have `units`, and a LayerNorm must not"
            raise user_error("A dense layer", expected, f"{wrong[0]!r:.200}")
        defaults = {"activation": "linear", "use_bias": True, "use_residual": False}
        steps = [{**defaults, **step} if step["type"] == DENSE else step for step in steps]
        self.initializer_range = initializer_range
        self._steps = steps
        self.layers = [
            (_ResidualDense if step["use_residual"] else keras.layers.Dense)(
                step["units"],
                activation=ACTIVATIONS[step["activation"]].function,
                use_bias=step["use_bias"],
                kernel_initializer=keras.initializers.TruncatedNormal(initializer_range),
                dtype="float32",
                name=f"dense_{place}",
            )
            if step["type"] == DENSE
            else keras.layers.LayerNormalization(
                epsilon=LAYER_NORM_EPSILON, dtype="float32", name=f"layer_norm_{place}"
            )
            for place, step in enumerate(steps)
        ]

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The steps of the constructor, with all keys."""
        return [dict(step) for step in self._steps]

    def build(self, input_shape):
        for layer in self.layers:
            layer.build(input_shape)
            input_shape = layer.compute_output_shape(input_shape)
        self.built = True

    def compute_output_shape(self, input_shape):
        return (*input_shape[:-1], projected_size(input_shape[-1], self._steps))

    def call(self, vectors):
        vectors = tf.cast(vectors, tf.float32)
        for layer in self.layers:
            vectors = layer(vectors)
        return vectors


class _ResidualDense(keras.layers.Dense):
    """A dense layer that adds its input, `[B, D] -> [B, units]`."""

    def build(self, input_shape):
        super().build(input_shape)
        self.residual_kernel = None
        if input_shape[-1] != self.units:
            self.residual_kernel = self.add_weight(
                name="residual_kernel",
                shape=(input_shape[-1], self.units),
                initializer=self.kernel_initializer.clone(),
            )

    def call(self, inputs, training=None):
        kernel = self.residual_kernel
        residual = inputs if kernel is None else tf.matmul(inputs, kernel)
        return super().call(inputs) + residual


def projected_size(size: int, steps: Sequence[Mapping[str, Any]]) -> int:
    """Returns the size of vectors after `steps`, `size` before them."""
    return next((step["units"] for step in reversed(steps) if "units" in step), size)


# Directions with a variance below this fraction of the largest are noise, which 1 / sqrt amplifies.
_SMALLEST_VARIANCE = 1e-9
_ROWS_AT_ONCE = 1024  # limits the memory


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
        """Computes the mean and the map of vectors `[n, D]` in float64 and assigns them.

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
        config = super().get_config()
        del config["trainable"]
        return config


def principal_directions(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns the mean `[D]` of vectors `[n, D]`, and variances `[d]` and unit directions `[D, d]`.

    The largest variance comes first; all are float64. There may be fewer than D directions: the
    outputs of a LayerNorm lie in a hyperplane, and so do their means over tokens.
    """
    mean = np.mean(vectors, axis=0, dtype=np.float64)
    covariance = np.zeros([len(mean), len(mean)])
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        centred = np.asarray(vectors[start : start + _ROWS_AT_ONCE], np.float64) - mean
        covariance += centred.T @ centred / len(vectors)
    variances, directions = np.linalg.eigh(covariance)  # ascending
    variances, directions = variances[::-1], directions[:, ::-1]
    kept = variances > _SMALLEST_VARIANCE * max(variances[0], 0.0)
    return mean, variances[kept], directions[:, kept]
