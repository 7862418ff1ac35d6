"""The losses of a distillation against float64 NumPy."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.adapt.distillation_losses import (
    attention_losses,
    soft_class_losses,
    soft_label_losses,
    squared_differences,
)
from bert_tf.training.evaluation.probabilities import sigmoid, softmax

RNG = np.random.default_rng(0)


def random(*shape):
    return RNG.normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
@pytest.mark.parametrize("shape", [(5, 3), (2, 4, 3)])
def test_classes(temperature, shape):
    student, teacher = random(*shape), random(*shape)
    p, q = softmax(teacher / temperature), softmax(student / temperature)
    expected = temperature**2 * np.sum(p * np.log(p / q), axis=-1)
    losses = soft_class_losses(student, teacher, temperature)
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(soft_class_losses(teacher, teacher, temperature), 0.0, atol=1e-6)


def test_temperature_leaves_the_gradient_as_large():
    student, teacher = tf.constant(random(4, 3) * 1e-2), random(4, 3) * 1e-2
    norms = []
    for temperature in (1.0, 8.0):
        with tf.GradientTape() as tape:
            tape.watch(student)
            loss = tf.reduce_sum(soft_class_losses(student, teacher, temperature))
        norms.append(tf.norm(tape.gradient(loss, student)))
    np.testing.assert_allclose(*norms, rtol=0.05)


def test_labels():
    student, teacher = random(5, 3), random(5, 3)
    p, q = sigmoid(teacher / 2.0), sigmoid(student / 2.0)
    expected = 4.0 * np.mean(-p * np.log(q) - (1 - p) * np.log(1 - q), axis=-1)
    np.testing.assert_allclose(soft_label_losses(student, teacher, 2.0), expected, rtol=1e-5)


def test_vectors():
    student, teacher = random(2, 3, 8), random(2, 3, 8)
    expected = np.mean((student.astype(np.float64) - teacher) ** 2, axis=-1)
    np.testing.assert_allclose(squared_differences(student, teacher), expected, rtol=1e-5)
    half = squared_differences(tf.cast(student, tf.float16), teacher)
    assert half.dtype == tf.float32
    np.testing.assert_allclose(half, expected, atol=1e-2)


@pytest.mark.parametrize("heads", [4, 3])
def test_attention(heads):
    student, teacher = softmax(random(2, 4, 5, 5)), softmax(random(2, heads, 5, 5))
    p, q = teacher, student
    if heads != 4:
        p, q = (each.mean(axis=1, keepdims=True) for each in (p, q))
    expected = np.sum(p * np.log(p / q), axis=-1).mean(axis=1)
    losses = attention_losses(tf.constant(student), tf.constant(teacher))
    assert losses.dtype == tf.float32
    np.testing.assert_allclose(losses, expected, rtol=1e-4, atol=1e-6)


def test_keys_that_nobody_sees_do_not_count():
    student, teacher = softmax(random(1, 2, 4, 3)), softmax(random(1, 2, 4, 3))
    padded = [np.pad(each, [(0, 0), (0, 0), (0, 0), (0, 2)]) for each in (student, teacher)]
    np.testing.assert_allclose(
        attention_losses(*map(tf.constant, padded)),
        attention_losses(tf.constant(student), tf.constant(teacher)),
        rtol=1e-6,
    )
