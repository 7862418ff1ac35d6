"""The rate of each schedule is that of its paper's or original's formula, wherever a run begins."""

import keras
import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training import Noam, WarmupCosineDecay, WarmupLinearDecay


@pytest.mark.parametrize("num_warmup_steps", [0, 1, 10, 100])
def test_linear_decay(num_warmup_steps):
    """google-research/bert, optimization.py: polynomial decay of all steps, and the warm-up."""
    schedule = WarmupLinearDecay(2.0, 100, num_warmup_steps)
    steps = np.array([0, 1, 9, 10, 11, 55, 99, 100, 500])
    decayed = 2.0 * (1 - np.minimum(steps, 100) / 100)
    warmup = 2.0 * steps / max(num_warmup_steps, 1)
    expected = np.where(steps < num_warmup_steps, warmup, decayed)
    np.testing.assert_allclose([float(schedule(step)) for step in steps], expected, atol=1e-6)


@pytest.mark.parametrize("kind", [WarmupLinearDecay, WarmupCosineDecay])
def test_a_share_of_the_run_is_warm_up(kind):
    by_share, by_steps = kind(1.0, 50, warmup=0.1), kind(1.0, 50, num_warmup_steps=5)
    assert by_share.run() == by_steps.run() == (0, 50, 5)
    for step in (0, 3, 5, 30, 50):
        assert float(by_share(step)) == float(by_steps(step))
    for options in ({"warmup": -0.1}, {"warmup": 1.1}, {"warmup": 0.1, "num_warmup_steps": 2}):
        with pytest.raises(UserError, match="warmup="):
            kind(1.0, 50, **options)


@pytest.mark.parametrize(
    "make",
    [
        lambda: WarmupLinearDecay(1.0, 20, 4),
        lambda: WarmupCosineDecay(1.0, 20, 4, final_rate=0.1),
        lambda: Noam(64, 4),
    ],
)
@pytest.mark.parametrize("first_step", [-3, 7])
def test_a_run_that_begins_elsewhere_has_the_same_rates(make, first_step):
    moved = make()
    moved.set_run(first_step, 20)
    assert moved.run()[0] == first_step
    for step in range(max(-first_step, 0), 20):
        np.testing.assert_allclose(moved(first_step + step), make()(step), rtol=1e-6)


def test_the_length_of_a_run_is_asked_for():
    schedule = WarmupLinearDecay(1.0, warmup=0.25)
    assert schedule.needs_run and not schedule.is_set
    with pytest.raises(UserError, match="`num_train_steps` must be given outside of `fit`"):
        schedule(0)
    schedule.set_run(0, 8)
    assert schedule.is_set and schedule.run() == (0, 8, 2)
    with pytest.raises(UserError, match="`num_warmup_steps` must be in"):
        WarmupLinearDecay(1.0, num_warmup_steps=9).set_run(0, 8)
    with pytest.raises(UserError, match="num_train_steps=0"):
        WarmupLinearDecay(1.0, num_train_steps=0)


def test_which_fit_continues_a_run():
    schedule = WarmupLinearDecay(1.0)
    schedule.set_run(0, 8)
    assert not schedule.continues(4)  # each `fit` is a run
    with schedule.held():
        assert schedule.continues(4)
    schedule.resume(0, 8)
    assert schedule.continues(4) and not schedule.continues(4)  # the next `fit` only
    schedule.resume(0, 8)
    assert not schedule.continues(8)  # the run is over
    assert Noam(64, 4).continues(1) and not Noam(64, 4).continues(0)


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
