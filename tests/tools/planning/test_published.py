"""The estimates of published runs, and the tables in docs/planning.md."""

import dataclasses

import pytest

from benchmarks.report import Table, format_table
from bert_tf.errors import UserError
from bert_tf.tools.planning import published, tables
from bert_tf.tools.planning.devices import DEVICES
from bert_tf.tools.planning.training_run import TrainingRun
from tests.conftest import REPOSITORY

ROWS = published.PUBLISHED


@pytest.mark.parametrize("row", [row for row in ROWS if row.is_fitted], ids=str)
def test_a_fitted_row_is_exact(row):
    assert published.estimated_speed(row) == pytest.approx(row.sequences_per_second)


def test_nvidias_runs_are_estimated_from_one_of_them():
    others = [row for row in ROWS if row.source == "TF2" and not row.is_fitted]
    ratios = [published.estimated_speed(row) / row.sequences_per_second for row in others]
    assert min(ratios) > 0.9 and max(ratios) < 1.4 and sorted(ratios)[len(ratios) // 2] < 1.1


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_efficiencies_are_shares(device):
    for precision in device.peak_flops:
        assert 0 < published.efficiency(device, precision) < 1


def test_float32_has_a_run_of_its_own():
    v100, tpu = DEVICES["v100-32"], DEVICES["tpu-v4"]
    assert published.fitted_row(v100, "float32").precision == "float32"
    assert published.fitted_row(v100, "mixed_float16").precision == "mixed_float16"
    assert published.fitted_row(tpu, "float32").device == "tpu-v3"
    with pytest.raises(UserError, match="--precision must be one of float32, mixed_float16 on"):
        published.efficiency(v100, "mixed_bfloat16")


def test_the_document_has_the_tables():
    """`python tools/plan_training.py --tables` prints what docs/planning.md shows."""
    text = (REPOSITORY / "docs" / "planning.md").read_text(encoding="utf-8")
    for rows in (tables.published_rows(), tables.device_rows()):
        assert format_table(Table("", rows)).strip() in text


def test_rows_of_a_plan_are_those_of_the_estimate():
    run = TrainingRun(tables.MODELS["base"], 64, 128)
    cluster = published.cluster_of(DEVICES["a100-80"], 2, "float32")
    one = published.estimate(run, published.Cut(1, 2, 4), cluster)
    (row,) = tables.cut_rows([one])
    assert (row["replicas"], row["stages"], row["parts"], row["checkpointing"]) == (1, 2, 4, "no")
    assert sum(part["ms"] for part in tables.time_rows(one)) == pytest.approx(row["ms per step"])
    stages = tables.memory_rows(one)
    assert max(stage["GiB"] for stage in stages) == row["GiB per device"]
    assert sum(stage["blocks"] for stage in stages) == 12
    for stage, memory in zip(stages, one.memory):
        parts = [stage[field.name] for field in dataclasses.fields(memory)]
        assert sum(parts) == pytest.approx(stage["GiB"])
