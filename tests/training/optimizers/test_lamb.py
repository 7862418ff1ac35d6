"""LAMB against the paper's algorithm in float64."""

import keras
import numpy as np
import tensorflow as tf

from bert_tf.training import LAMB


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
    values = {name: rng.normal(size=(5, 3)) for name in ("kernel", "bias", "gamma")}
    values["zero_kernel"] = np.zeros((4, 2))  # its first step has no length to adapt to
    shapes = {name: value.shape for name, value in values.items()}
    variables = [keras.Variable(v.astype(np.float32), name=name) for name, v in values.items()]
    optimizer, reference = LAMB(0.01), NumpyLamb(plain=("bias", "gamma"))
    for _ in range(20):
        gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        reference.apply(values, gradients, 0.01)
        optimizer.apply([tf.constant(g, tf.float32) for g in gradients.values()], variables)
    for variable, (name, expected) in zip(variables, values.items()):
        np.testing.assert_allclose(variable.numpy(), expected, atol=1e-5, err_msg=name)


def test_config_round_trip():
    optimizer = LAMB(1e-3, clip_norm=None, layer_decay=0.9)
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert again.get_config() == optimizer.get_config()
