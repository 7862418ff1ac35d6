"""The planning program as a user starts it. Nothing is timed."""

import json

import pytest

from bert_tf.tools.planning import calibration
from tests.tools.planning.test_calibration import CALIBRATION
from tests.tools.running import run, run_program


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibration") / "machine.json"
    calibration.write(CALIBRATION, path)
    return path


def test_a_plan_is_printed_and_written_without_tensorflow(tmp_path):
    output = tmp_path / "plan.json"
    result = run_program(
        "-Ximporttime",
        "tools/plan_training.py",
        "--model=large",
        "--train_batch_size=512",
        "--num_devices=8",
        "--precision=mixed_bfloat16",
        "--num_train_steps=1000",
        "--top=2",
        f"--json={output}",
    )
    assert result.returncode == 0, result.stderr
    assert " tensorflow\n" not in result.stderr
    assert "An estimate: 0.48 of the ideal speed of a100-80" in result.stdout
    assert "1,000 steps take" in result.stdout
    values = json.loads(output.read_text())
    assert len(values["cuts"]) == 2 and values["memory"][0]["blocks"] > 0
    assert values["cuts"][0]["replicas"] * values["cuts"][0]["stages"] == 8


def test_workers_of_a_calibrated_machine(machine):
    flags = ("--device=cpu", f"--calibration_file={machine}", "--num_devices=2")
    result = run("plan_training", *flags)
    assert result.returncode == 0, result.stderr
    assert "2 workers per machine with 1 threads" in result.stdout
    slow = ("--devices_per_machine=1", "--threads=2", "--link_gbps=1", "--stages=1")
    result = run("plan_training", *flags, *slow)
    assert result.returncode == 0 and "all_reduce" in result.stdout, result.stderr


WRONG = (
    (("--model=huge",), "--model must be base, large, or a JSON file"),
    (("--max_seq_length=513",), "--max_seq_length must be at most 512"),
    (("--device=cpu",), "--calibration_file must be set with --device=cpu"),
    (("--device=v100-32", "--precision=bfloat16"), "--precision must be one of float32,"),
    (("--calibrate", "--calibration_file=a", "--setups=2"), "--setups must be WORKERSxTHREADS"),
    (("--validate", "--calibration_file=missing"), "that --calibrate has written"),
    (("--model=large", "--usable_memory=0.01"), "A device must have room for the run"),
)
ALSO_WRONG = (
    (("--max_predictions_per_seq=129",), "must be at most 128, the length of the rows"),
    (("--threads=2",), "--threads must be set only with --device=cpu"),
    (("--num_devices=13",), "--num_devices must be replicas × stages"),
    (("--tables", "--validate"), "--tables must be set alone"),
    (("--validate",), "--calibration_file must be set with --validate"),
    (("--setups=2x1",), "--setups must be set only with --calibrate"),
)
WRONG_FOR_CPU = (
    (("--num_devices=4", "--devices_per_machine=2"), "--link_gbps must be set for several"),
    (("--num_devices=4",), "must be one of the setups in --calibration_file: 1 × 2, 2 × 1"),
)
ALSO_WRONG_FOR_CPU = (
    (("--precision=mixed_bfloat16",), "--precision must be float32 with --device=cpu"),
    (("--ops=reference",), "--ops must be native with --device=cpu"),
)


def full(cases):
    return [pytest.param(*case, marks=pytest.mark.full) for case in cases]


@pytest.mark.parametrize("flags, message", [*WRONG, *full(ALSO_WRONG)])
def test_wrong_flags_are_found_at_once(flags, message):
    result = run("plan_training", *flags)
    assert result.returncode == 1 and result.stdout == "", result.stdout
    assert message in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr


@pytest.mark.parametrize("flags, message", [*WRONG_FOR_CPU, *full(ALSO_WRONG_FOR_CPU)])
def test_wrong_flags_of_a_calibrated_machine(machine, flags, message):
    result = run("plan_training", "--device=cpu", f"--calibration_file={machine}", *flags)
    assert result.returncode == 1 and message in result.stderr, result.stderr


def small_measurements():
    """Called in the process of the program: sizes that take seconds."""
    from bert_tf.tools.planning import measuring, validation

    measuring.TURN_SECONDS, validation.TURN_SECONDS = 0.02, 0.0
    measuring.MATMULS = ((8, 16, 32), (16, 32, 16), (32, 8, 64))
    measuring.ATTENTIONS = ((2, 8, 1, 64), (4, 16, 2, 64))
    measuring.SHAPES = dict.fromkeys(measuring.SHAPES, ((16, 64),))
    measuring.REDUCED = (64, 2**20)
    tiny, small = (measuring.small_config(layers, 64, 100) for layers in (1, 4))
    measuring.STEPS = ((tiny, 2, 8), (small, 2, 8), (tiny, 16, 64))
    validation.MODELS, validation.LENGTHS, validation.BATCHES = ((1, 64),), (16,), (1,)


@pytest.mark.full
def test_this_machine_is_calibrated_and_validated(tmp_path):
    path, output = tmp_path / "machine.json", tmp_path / "results.json"
    result = run(
        "plan_training",
        "--calibrate",
        "--validate",
        "--setups=1x1,2x1",
        f"--calibration_file={path}",
        f"--json={output}",
        prepare=small_measurements,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    assert [setup.workers for setup in calibration.read(path).setups] == [1, 2]
    values = json.loads(output.read_text())
    assert [(row["workers"], row["batch"]) for row in values["times"]] == [(1, 1), (2, 2)]
    assert all(row["measured ms"] > 0 and row["estimated ms"] > 0 for row in values["times"])
    assert values["memory"][0]["weights, gradients, slots MiB"] > 0
