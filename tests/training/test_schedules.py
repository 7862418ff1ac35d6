"""The rate of each schedule is that of its paper's or original's formula, wherever a run begins."""

import keras
import numpy as np
import pytest

from bert_tf.errors import UserError
from bert_tf.training import (
    Noam,
    WarmupConstant,
    WarmupCosineDecay,
    WarmupCosineRestarts,
    WarmupInverseSqrt,
    WarmupLinearDecay,
    WarmupPolynomialDecay,
    WarmupStableDecay,
)


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
        lambda: WarmupConstant(1.0, 4),
        lambda: WarmupInverseSqrt(1.0, 4),
        lambda: WarmupPolynomialDecay(1.0, 20, 4, power=2.0),
        lambda: WarmupCosineRestarts(1.0, 20, 4, num_cycles=2),
        lambda: WarmupStableDecay(1.0, 20, 4, decay=0.25),
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
        WarmupConstant(1e-3, 4),
        WarmupInverseSqrt(1e-3, 4, timescale=9),
        WarmupPolynomialDecay(1e-3, 10, 2, power=0.5, final_rate=1e-4),
        WarmupCosineRestarts(1e-3, 10, 2, num_cycles=3),
        WarmupStableDecay(1e-3, 10, num_decay_steps=3, decay_type="1-sqrt", warmup=0.1),
    ],
    ids=lambda schedule: type(schedule).__name__,
)
def test_config_round_trip(schedule):
    again = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert again.get_config() == schedule.get_config()


# transformers 5.24.0, the `lr_lambdas` of `get_…_schedule(optimizer, num_warmup_steps=10, …)` times
# 2, at these steps; with an end, `num_training_steps=110`.
STEPS = [0, 3, 10, 11, 35, 59, 85, 99, 109, 110, 500]
RUN = {"num_train_steps": 110, "num_warmup_steps": 10}
# fmt: off
TRANSFORMERS = {
    "constant_schedule_with_warmup": (
        WarmupConstant(2.0, 10), [0.0, 0.6, *[2.0] * 9]
    ),
    "inverse_sqrt_schedule": (
        WarmupInverseSqrt(2.0, 10),
        [0.0, 0.6, 2.0, 1.9069251784911845, 1.0690449676496976, 0.8233869695926183,
         0.6859943405700353, 0.6356417261637282, 0.6057825328153826, 0.6030226891555273,
         0.282842712474619],
    ),
    "inverse_sqrt_schedule, timescale=40": (
        WarmupInverseSqrt(2.0, 10, timescale=40),
        [0.0, 0.6, 2.0, 1.9754591932991794, 1.5689290811054724, 1.3408030463079819,
         1.179535649239177, 1.1136920927794092, 1.07288356157164, 1.0690449676496976,
         0.5494422557947561],
    ),
    "polynomial_decay_schedule_with_warmup, lr_end=0.2, power=2.5": (
        WarmupPolynomialDecay(2.0, **RUN, power=2.5, final_rate=0.2),
        [0.0, 0.6, 2.0, 1.9553369367947566, 1.0768507213317442, 0.5343473961675191,
         0.25625000000000003, 0.20722360879339408, 0.200018, 0.2, 0.2],
    ),
    "cosine_with_hard_restarts_schedule_with_warmup, num_cycles=3": (
        WarmupCosineRestarts(2.0, **RUN, num_cycles=3),
        [0.0, 0.6, 2.0, 1.99556196460308, 0.29289321881345254, 1.0941083133185145,
         1.7071067811865475, 0.4909585842496291, 0.004438035396920115, 0.0, 0.0],
    ),
    "wsd_schedule, num_decay_steps=30": (
        WarmupStableDecay(2.0, **RUN, num_decay_steps=30),
        [0.0, 0.6, *[2.0] * 4, 1.8660254037844388, 0.5932633569242, 0.00547810463172671, 0.0, 0.0],
    ),
    "wsd_schedule, num_decay_steps=30, decay_type=linear": (
        WarmupStableDecay(2.0, **RUN, num_decay_steps=30, decay_type="linear"),
        [0.0, 0.6, *[2.0] * 4, 1.6666666666666667, 0.7333333333333334, 0.06666666666666665, 0, 0],
    ),
    # Its warm-up begins at the rate of the end.
    "wsd_schedule, num_decay_steps=30, decay_type=1-sqrt, min_lr_ratio=0.1": (
        WarmupStableDecay(2.0, **RUN, num_decay_steps=30, decay_type="1-sqrt", final_rate=0.2),
        [None, None, *[2.0] * 4, 1.2651530771650465, 0.5675196336424013, 0.23025425554968498, 0.2,
         0.2],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_rates_are_those_of_transformers(name):
    schedule, expected = TRANSFORMERS[name]
    for step, rate in zip(STEPS, expected, strict=True):
        if rate is not None:
            assert float(schedule(step)) == pytest.approx(rate, abs=2e-6), step


def test_a_restart_is_at_its_step():
    """7 cycles in 700 steps: thirds and sevenths are no float32."""
    schedule = WarmupCosineRestarts(1.0, 710, 10, num_cycles=7, final_rate=0.5)
    for cycle in range(7):
        assert float(schedule(10 + 100 * cycle)) == 1.0
        before = float(schedule(10 + 100 * cycle + 99))
        assert before == pytest.approx(0.5 + 0.25 * (1 + np.cos(np.pi * 0.99)), abs=1e-6)
    assert float(schedule(710)) == float(schedule(900)) == 0.5


def test_the_share_of_a_run_that_is_decay():
    by_share, by_steps = (
        WarmupStableDecay(1.0, 50, warmup=0.1, **options)
        for options in ({"decay": 0.4}, {"num_decay_steps": 20})
    )
    for step in (0, 3, 5, 29, 30, 31, 49, 50, 60):
        assert float(by_share(step)) == pytest.approx(float(by_steps(step)), abs=1e-6)
    default = WarmupStableDecay(1.0, 50)
    assert float(default(45)) == 1.0 > float(default(46)) and default.run() == (0, 50, 0)
    never = WarmupStableDecay(1.0, 50, num_decay_steps=0)
    assert [float(never(step)) for step in (0, 49, 50)] == [1.0, 1.0, 0.0]
    spread = WarmupStableDecay(1.0, warmup=0.5, decay=0.5)
    spread.set_run(0, 8)
    assert float(spread(4)) == 1.0 and float(spread(6)) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WarmupConstant(1.0, -1), "num_warmup_steps=-1"),
        (lambda: WarmupInverseSqrt(1.0, -1), "num_warmup_steps=-1"),
        (lambda: WarmupInverseSqrt(1.0, 4, timescale=0), "`timescale` must be at least 1"),
        (lambda: WarmupPolynomialDecay(1.0, 9, power=0), "`power` must be above 0"),
        (lambda: WarmupPolynomialDecay(1.0, 9, 10), "num_warmup_steps=10"),
        (lambda: WarmupCosineRestarts(1.0, 9, num_cycles=0), "num_cycles=0"),
        (lambda: WarmupCosineRestarts(1.0, 9, num_cycles=1.5), "num_cycles=1.5"),
        (lambda: WarmupStableDecay(1.0, 9, decay_type="step"), "`decay_type` must be one of"),
        (lambda: WarmupStableDecay(1.0, 9, num_decay_steps=1, decay=0.1), "At most one of"),
        (lambda: WarmupStableDecay(1.0, 9, num_decay_steps=-1), "num_decay_steps=-1"),
        (lambda: WarmupStableDecay(1.0, 9, decay=1.1), "`decay` must be in"),
        (lambda: WarmupStableDecay(1.0, 9, 4, num_decay_steps=6), "Received: 6 steps, num_warm"),
        (lambda: WarmupStableDecay(1.0, warmup=0.6, decay=0.5).set_run(0, 10), "5 steps"),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(UserError, match=message):
        make()
