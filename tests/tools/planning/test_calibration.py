"""Rates from times: fits, files, and a machine whose rates are known."""

import dataclasses
import json
import math

import pytest

from benchmarks.workloads import masked_count
from bert_tf.errors import ConfigError, UserError
from bert_tf.tools.planning import calibration, measuring, work
from bert_tf.tools.planning.calibration import Calibration, Setup
from bert_tf.tools.planning.communication import Link
from bert_tf.tools.planning.fitting import fit
from bert_tf.tools.planning.rates import Rates

RATES = Rates(
    seconds_per_flop=1e-11,
    attention_seconds_per_flop=2e-11,
    bytes_per_second=dict(zip(work.PASSES, (1e9, 2e9, 3e9, 4e9, 5e9))),
    seconds_per_matmul_byte=1e-10,
    attention_seconds_per_score=3e-9,
    seconds_per_block=1e-3,
    seconds_per_step=2e-3,
    efficiency=0.8,
)
LINK = Link(1e9, 1e-4)
CALIBRATION = Calibration("a processor", 2, 2**34, (Setup(1, 2, RATES), Setup(2, 1, RATES, LINK)))


def test_fit():
    rows = [(1.0, 5.0, 1.0), (4.0, 1.0, 1.0), (9.0, 2.0, 1.0), (2.0, 7.0, 1.0)]
    assert fit(rows, [2 * a + 3 * b + c for a, b, c in rows]) == pytest.approx([2, 3, 1])
    # A line through these begins at -1.
    slope, start = fit([(1.0, 1.0), (2.0, 1.0)], [1.0, 3.0])
    assert start == 0.0 and 1.0 < slope < 1.5
    assert fit([(0.0, 1.0), (0.0, 2.0)], [1.0, 2.0]) == pytest.approx([0, 1])


class Staff:
    """Workers of a machine with known rates: the times are computed from them."""

    CALL = 1e-4

    def __init__(self, workers):
        self.workers = workers

    def measure(self, job, turn_seconds, **arguments):
        return getattr(self, f"_{job}", self._pass)(job, **arguments)

    def _nothing(self, job):
        return self.CALL

    def _matmul(self, job, shape):
        return 3 * RATES.matmul_seconds(*shape, number_bytes=4) + self.CALL

    def _attention(self, job, shape):
        sequences, length, heads, size = shape
        scores = sequences * heads * length**2
        of_score = 14 * size * RATES.attention_seconds_per_flop + RATES.attention_seconds_per_score
        return scores * of_score + self.CALL

    def _pass(self, job, shape):
        tensors = {"gelu": 5, "layer_norm": 8, "copy": 3, "logits": 8, "optimizer": 8}[job]
        return RATES.pass_seconds(job, tensors * 4 * math.prod(shape)) + self.CALL

    def _all_reduce(self, job, shape):
        return 2 * LINK.send(4 * shape[0] / 2)

    def _step(self, job, config, batch, length):
        assert masked_count(length) <= 20
        arguments = (config, batch, length, self.workers, RATES, LINK)
        return measuring.step_estimate(*arguments).seconds_per_step


@pytest.mark.parametrize("workers", [1, 2])
def test_known_rates_are_found(workers):
    staff = Staff(workers)
    rates, link = measuring._parts(staff), measuring._link(staff, 2)
    assert dataclasses.asdict(link) == pytest.approx(dataclasses.asdict(LINK))
    found = measuring._whole(staff, workers, rates, link)
    expected = dataclasses.asdict(RATES)
    assert found.bytes_per_second == pytest.approx(expected.pop("bytes_per_second"))
    for name, value in expected.items():
        assert getattr(found, name) == pytest.approx(value, rel=1e-3), name


def test_a_busy_machine_is_refused():
    staff = Staff(1)
    staff._step = lambda job, config, batch, length: 1.0 / batch / length / config["hidden_size"]
    with pytest.raises(UserError, match="a busy machine"):
        measuring._whole(staff, 1, RATES, LINK)
    staff.workers = 2
    staff._step = lambda job, **arguments: 1e-6
    with pytest.raises(UserError, match="longer than its all-reduce"):
        measuring._whole(staff, 2, RATES, LINK)
    staff._all_reduce = lambda job, shape: 1.0 / shape[0]
    with pytest.raises(UserError, match="longer with more data"):
        measuring._link(staff, 2)


def test_file(tmp_path):
    path = tmp_path / "machine.json"
    calibration.write(CALIBRATION, path)
    assert calibration.read(path) == CALIBRATION
    values = json.loads(path.read_text())
    del values["setups"][0]["rates"]["efficiency"]
    path.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="efficiency"):
        calibration.read(path)
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"machine\.json"):
        calibration.read(path)
    with pytest.raises(ConfigError, match="that --calibrate has written"):
        calibration.read(tmp_path / "missing.json")


@pytest.mark.parametrize("bad", [0, -1.0, "fast", None])
def test_a_damaged_rate_is_refused(tmp_path, bad):
    values = json.loads(json.dumps(calibration.as_json(CALIBRATION)))
    values["setups"][0]["rates"]["bytes_per_second"]["gelu"] = bad
    path = tmp_path / "machine.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="gelu"):
        calibration.read(path)


def test_setups():
    cluster = CALIBRATION.cluster(4, 2, 1, LINK)
    assert cluster.memory == 2**33 and cluster.num_devices == 4 and cluster.inner == LINK
    with pytest.raises(UserError, match=r"1 × 2, 2 × 1\. Received: 3 × 1"):
        CALIBRATION.setup(3, 1)
