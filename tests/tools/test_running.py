"""A forked tool is as one that was started: its surroundings, its outputs, its end."""

import os
import pathlib
import sys

import pytest
import tensorflow as tf

from tests.conftest import REPOSITORY
from tests.tools.running import run, run_program


def show_surroundings():
    print(os.getcwd(), os.environ.get("BERT_TF_OPS"), "HOME" in os.environ, sys.argv)
    print("a mistake \ud800", file=sys.stderr)
    raise SystemExit(3)


def test_surroundings_and_outputs(monkeypatch):
    monkeypatch.setenv("BERT_TF_OPS", "of the test")
    monkeypatch.delenv("HOME", raising=False)
    result = run("predict", "--a=b", prepare=show_surroundings)
    assert result.returncode == 3
    command = ["bert_tf/tools/predict.py", "--a=b"]
    assert result.stdout == f"{REPOSITORY} of the test False {command}\n"
    assert result.stderr == "a mistake \\ud800\n"


def fail():
    raise ValueError("not a user's mistake")


def test_an_exception_ends_with_its_traceback():
    result = run("predict", prepare=fail)
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("Traceback")
    assert result.stderr.endswith("ValueError: not a user's mistake\n")


def show_threads_of_the_server():
    tasks = pathlib.Path(f"/proc/{os.getppid()}/task")
    print(*((task / "comm").read_text().strip() for task in tasks.iterdir()))
    raise SystemExit


def test_the_fork_server_has_not_started_tensorflow():
    shown = run("predict", prepare=show_threads_of_the_server).stdout.split()
    # jemalloc, of pyarrow, expects forks.
    assert len([name for name in shown if name != "jemalloc_bg_thd"]) == 1, shown


def show_the_stack_of_an_operation():
    with tf.Graph().as_default():
        print(tf.constant(0).op.traceback)
    raise SystemExit


def test_operations_keep_no_stacks(capsys):
    with pytest.raises(SystemExit):
        show_the_stack_of_an_operation()
    forked = run("predict", prepare=show_the_stack_of_an_operation)
    assert capsys.readouterr().out == forked.stdout == "None\n"


@pytest.mark.parametrize("flags", [("--no_such_flag=1",), ("positional",), ("--run=a=absent",)])
def test_it_says_what_a_real_start_says(flags):
    """But for --help, which lists TensorFlow's own flags where that is imported."""
    forked, real = run("compare_runs", *flags), run_program("tools/compare_runs.py", *flags)
    assert forked.returncode == real.returncode
    assert (forked.stdout, forked.stderr) == (real.stdout, real.stderr)
