"""Cosine and Noam; the original's schedule is in test_adam_weight_decay.py."""

import keras
import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training import Noam, WarmupCosineDecay, WarmupLinearDecay


def test_cosine():
    schedule = WarmupCosineDecay(1.0, num_train_steps=110, num_warmup_steps=10, final_rate=0.1)
    steps = np.array([0, 5, 10, 35, 60, 110, 500])
    done = np.clip((steps - 10) / 100, 0, 1)
    expected = np.where(steps < 10, steps / 10, 0.1 + 0.9 * 0.5 * (1 + np.cos(np.pi * done)))
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, atol=1e-6)
    with pytest.raises(UserError, match="num_warmup_steps=5"):
        WarmupCosineDecay(1.0, num_train_steps=5, num_warmup_steps=5)


def test_linear_decay_from_the_end_of_the_warm_up():
    """transformers, optimization_tf.py: WarmUp, then PolynomialDecay of the other steps."""
    schedule = WarmupLinearDecay(10.0, 10, 2, decay_after_warmup=True)
    rates = [float(schedule(step)) for step in range(12)]
    decay = keras.optimizers.schedules.PolynomialDecay(10.0, 8, end_learning_rate=0.0)
    expected = [0.0, 5.0, *(float(decay(step)) for step in range(10))]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)
    assert float(WarmupLinearDecay(1.0, 5, 5, decay_after_warmup=True)(5)) in (0.0, 1.0)


def test_noam():
    schedule = Noam(hidden_size=512, num_warmup_steps=4000, factor=2.0)
    steps = np.array([1, 100, 4000, 4001, 100_000])
    expected = 2.0 * 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5)
    np.testing.assert_allclose([float(schedule(step - 1)) for step in steps], expected, rtol=1e-5)
    with pytest.raises(UserError, match="num_warmup_steps=0"):
        Noam(512, num_warmup_steps=0)


@pytest.mark.parametrize(
    "schedule",
    [
        WarmupLinearDecay(1e-3, 10, 2, decay_after_warmup=True),
        WarmupCosineDecay(1e-3, 10, 2),
        Noam(256, 100),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_config_round_trip(schedule):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert again.get_config() == schedule.get_config()
