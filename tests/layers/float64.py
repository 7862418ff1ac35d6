"""The layers' formulas in float64 NumPy, written from the papers, and comparisons with them.

Tests compare a layer's float32 numbers with them, and its gradients with differences of them.
"""

import keras
import numpy as np
import tensorflow as tf

EPSILON = 1e-12  # google-research/bert modeling.py


def layer_norm(x, gamma, beta):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred**2).mean(axis=-1, keepdims=True)
    return gamma * centred / np.sqrt(variance + EPSILON) + beta


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention(qkv, num_heads, allowed, bias=0.0):
    """Returns the attention of one sequence.

    Args:
        qkv: `[S, 3 n D]`, the queries, keys and values of its tokens.
        num_heads: n.
        allowed: bool `[S, S]`, the keys that each query attends to.
        bias: `[n, S, S]`, added to the scores.

    Returns:
        `[S, n D]`, and the probabilities `[n, S, S]`.
    """
    length = len(qkv)
    query, key, value = qkv.reshape(length, 3, num_heads, -1).transpose(1, 2, 0, 3)  # [n, S, D]
    scores = query @ key.swapaxes(1, 2) / np.sqrt(query.shape[-1]) + bias
    probabilities = softmax(np.where(allowed, scores, -np.inf))
    return (probabilities @ value).swapaxes(0, 1).reshape(length, -1), probabilities


def lstm(cell, tokens):
    """Returns the outputs of an LSTM for one sequence, `[S, H]` -> `[S, U]`.

    The gates are in Keras's order: input, forget, candidate, output.
    """
    kernel, recurrent, bias = (np.float64(variable) for variable in cell.trainable_variables)
    h = c = np.zeros(len(recurrent))
    outputs = []
    for x in tokens:
        i, f, g, o = np.split(x @ kernel + h @ recurrent + bias, 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
        outputs.append(h)
    return np.array(outputs).reshape(len(tokens), len(recurrent))


def stacked_lstm(blocks, tokens):
    """Returns the outputs of a `StackedLSTM` with these `blocks` for one sequence `[S, H]`.

    They are `[S, W]` and the output of each direction after all tokens, `[1, W]`.
    """
    for block in blocks:
        outputs = [lstm(block.forward, tokens)]
        final = [outputs[0][-1:]]
        if block.backward is not None:
            outputs.append(lstm(block.backward, tokens[::-1])[::-1])
            final.append(outputs[1][:1])
        tokens = np.concatenate(outputs, axis=1)
    return tokens, np.concatenate(final, axis=1)


def randomize(layer, scale=0.3) -> None:
    """Gives all weights random numbers, so that no bias is zero and no gamma is one."""
    random = np.random.default_rng(1)
    for variable in layer.variables:
        if variable.dtype == "float32":
            variable.assign(variable + random.normal(scale=scale, size=variable.shape))


def weights_of(layer) -> dict[str, np.ndarray]:
    """Returns the trainable weights in float64 by their paths below the layer."""
    return {
        variable.path.removeprefix(f"{layer.name}/"): variable.numpy().astype(np.float64)
        for variable in layer.trainable_variables
    }


def assert_right(layer, function, formula, inputs, rtol=1e-4, **others) -> None:
    """Asserts that outputs and gradients of a layer are those of a formula.

    Each gradient is compared along three random directions with the difference of the formula
    at two near points.

    Args:
        layer: A built layer.
        function: Called with the tensors of `inputs`; returns float32 rows.
        formula: Called with the weights of the layer by name, then the inputs, in float64.
        inputs: The arrays by which the function has derivatives.
        rtol: How far a gradient may be from the formula's, times the largest one along a direction.
        **others: Further arguments of the formula.
    """
    inputs = [np.asarray(value, np.float64) for value in inputs]
    tensors = [tf.constant(value, tf.float32) for value in inputs]
    weights, variables = weights_of(layer), [one.value for one in layer.trainable_variables]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        y = function(*tensors)
    expected = formula(weights, *inputs, **others)
    assert_near(y, expected)
    random = np.random.default_rng(0)
    dy = random.normal(size=expected.shape)
    sources = [*variables, *tensors]
    gradients = tape.gradient(y, sources, tf.constant(dy, tf.float32))
    names = [*weights, *range(len(inputs))]

    def loss(name, moved):
        if isinstance(name, str):
            return (formula({**weights, name: moved}, *inputs, **others) * dy).sum()
        moved_inputs = [*inputs[:name], moved, *inputs[name + 1 :]]
        return (formula(weights, *moved_inputs, **others) * dy).sum()

    for name, gradient in zip(names, gradients, strict=True):
        gradient = tf.convert_to_tensor(gradient).numpy().astype(np.float64)
        at = weights[name] if isinstance(name, str) else inputs[name]
        for _ in range(3):
            way = random.normal(size=at.shape)
            slope = (loss(name, at + 1e-6 * way) - loss(name, at - 1e-6 * way)) / 2e-6
            largest = np.abs(gradient * way).sum() + 1.0
            assert abs((gradient * way).sum() - slope) <= rtol * largest, name


def assert_near(y, expected, bound=1e-5) -> None:
    """Asserts that rows are those of the formula; `bound` is times the largest number or 1."""
    error = bound * max(1.0, np.abs(expected).max(initial=0.0))
    np.testing.assert_allclose(tf.cast(y, tf.float32), expected, rtol=0, atol=error)


def again(layer):
    """Returns a layer made from what Keras stores of this one."""
    return keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
