"""TensorFlow's start-up messages are filtered, and nothing else is. A module plays TensorFlow."""

import pytest

from tests.tools.running import run_program

TENSORFLOW = r"""
import os, sys, warnings
os.write(2, b"WARNING: All log messages before absl::InitializeLog() is called are written\n")
os.write(2, b"I0000 00:00:1795646196.400133   13137 cudart_stub.cc:31] No cuda drivers\n")
os.write(2, b"E0000 00:00:1795646391.535357   20189 cuda_platform.cc:52] failed call to cuInit\n")
os.write(2, b"F0000 00:00:1795646391.535357   20189 cpu_feature_guard.cc:67] no AVX\n")
print("an import fails", file=sys.stderr)
if os.environ.get("ABORTS"):
    os.abort()
warnings.warn("something is old")
level = os.environ["TF_CPP_MIN_LOG_LEVEL"]
"""
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from bert_tf.base import quiet
quiet.silence()
import tensorflow
print("imported", tensorflow.level, file=sys.stderr)
"""
KEPT = [
    "F0000 00:00:1795646391.535357   20189 cpu_feature_guard.cc:67] no AVX",
    "an import fails",
    "warning: something is old",
]


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs the program with that module and these variables."""
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW, encoding="utf-8")
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)

    def run(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return run_program("-c", PROGRAM, tmp_path)

    return run


def test_only_start_up_messages_are_dropped(start):
    result = start()
    assert result.returncode == 0 and result.stdout == ""
    assert result.stderr.splitlines() == [*KEPT, "imported 3"]


def test_a_users_level_is_kept_with_all_messages(start):
    lines = start(TF_CPP_MIN_LOG_LEVEL="1").stderr.splitlines()
    assert len(lines) == 7 and lines[0].startswith("WARNING: All log")
    assert lines[-1] == "imported 1"


def test_a_program_that_a_silenced_one_starts_is_silent_too(start):
    assert start(TF_CPP_MIN_LOG_LEVEL="3").stderr.splitlines() == [*KEPT, "imported 3"]


def test_the_last_words_before_an_abort_are_shown(start):
    result = start(ABORTS="1")
    assert result.returncode < 0
    assert result.stderr.splitlines() == KEPT[:2]


def test_without_grep_nothing_is_dropped(start, tmp_path):
    assert len(start(PATH=str(tmp_path)).stderr.splitlines()) == 7
