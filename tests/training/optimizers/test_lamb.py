"""LAMB against the paper's algorithm in float64."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training import LAMB
from tests.numpy_bert import error_bound


class NumpyLamb:
    """Algorithm 2 of arXiv 1904.00962; `plain` are neither decayed nor adapted."""

    def __init__(self, plain):
        self.state, self.plain, self.step = {}, plain, 0

    def apply(self, variables, gradients, rate):
        self.step += 1
        scale = min(1.0, 1.0 / np.sqrt(sum((g**2).sum() for g in gradients.values())))
        for name, gradient in gradients.items():
            g = gradient * scale
            m, v = self.state.get(name, (0.0, 0.0))
            m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
            self.state[name] = m, v
            update = m / (1 - 0.9**self.step) / (np.sqrt(v / (1 - 0.999**self.step)) + 1e-6)
            ratio = 1.0
            if name not in self.plain:
                update = update + 0.01 * variables[name]
                lengths = np.linalg.norm(variables[name]), np.linalg.norm(update)
                ratio = lengths[0] / lengths[1] if min(lengths) > 0 else 1.0
            variables[name] = variables[name] - rate * ratio * update


def test_follows_the_paper():
    rng = np.random.default_rng(0)
    shapes = dict.fromkeys(("kernel", "bias", "gamma"), (5, 3)) | {"zero_kernel": (4, 2)}

    def random_values():
        return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}

    def in_float64(values):
        return {name: value.astype(np.float64) for name, value in values.items()}

    rounded = random_values()
    rounded["zero_kernel"] *= 0  # its first step has no length to adapt to
    exact = in_float64(rounded)
    variables = [keras.Variable(value, name=name) for name, value in rounded.items()]
    optimizer = LAMB(0.01)
    reference, plain = (NumpyLamb(plain=("bias", "gamma")) for _ in range(2))
    for _ in range(20):
        gradients = random_values()
        reference.apply(exact, in_float64(gradients), 0.01)
        plain.apply(rounded, gradients, 0.01)
        optimizer.apply([tf.constant(g) for g in gradients.values()], variables)
    for variable, (name, expected) in zip(variables, exact.items(), strict=True):
        bound = error_bound(expected, rounded[name])
        np.testing.assert_allclose(variable.numpy(), expected, rtol=0, atol=bound, err_msg=name)


def test_config_round_trip():
    optimizer = LAMB(1e-3, clip_norm=None, layer_decay=0.9)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
