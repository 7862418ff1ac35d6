"""tools/plot_training.py, run as a user runs it."""

import json

import pytest

from tests.tools.running import run


@pytest.fixture
def run_directory(tmp_path):
    directory = tmp_path / "mlm"
    directory.mkdir()
    lines = [{"step": step, "loss": 9.0 - step / 100} for step in range(100, 500, 100)]
    lines.append({"step": 400, "val_loss": 6.0})
    (directory / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def test_a_picture_of_the_curve(run_directory, tmp_path):
    picture = tmp_path / "curve.png"
    flags = [f"--runs={run_directory}", f"--output_file={picture}", "--line=loss:5:unigram"]
    done = run("plot_training", *flags)
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 5000


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--metrics=nonsense"], "nonsense"),
        (["--line=loss:high:x"], "metric:value:label"),
        (["--runs=nowhere"], "log.jsonl"),
        (["--output_file=curve.txt"], ".png"),
    ],
)
def test_a_wrong_flag_is_told_and_nothing_is_written(run_directory, tmp_path, flags, message):
    flags = [f"--runs={run_directory}", f"--output_file={tmp_path}/curve.png", *flags]
    done = run("plot_training", *flags)
    assert done.returncode != 0
    assert message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "curve.png").exists()
