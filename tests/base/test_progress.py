"""Bars on a terminal, lines now and then elsewhere."""

import sys

import pytest

from bert_tf.base import progress


@pytest.fixture(autouse=True)
def as_programs_begin(monkeypatch):
    monkeypatch.setattr(progress, "_always", False)


def test_short_work_prints_nothing_in_a_log_file(capsys):
    assert list(progress.progress_bar(range(3), desc="counting", delay=0)) == [0, 1, 2]
    assert capsys.readouterr().err == ""


def test_long_work_prints_complete_lines_in_a_log_file(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    assert list(progress.progress_bar(range(3), desc="counting")) == [0, 1, 2]
    shown = capsys.readouterr().err
    assert sum("3/3" in line for line in shown.splitlines()) == 1
    assert shown.splitlines()[-1].startswith("counting: 100%|##########| 3/3 [")
    assert "\r" not in shown and shown.endswith("\n")
    assert shown.count("3/3") == 1


def test_slices_count_their_items(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    assert list(progress.progress_slices(5, 3, desc="reading")) == [slice(0, 3), slice(3, 5)]
    assert capsys.readouterr().err.splitlines()[-1].startswith("reading: 100%|##########| 5/5 [")
    assert list(progress.progress_slices(0, 3)) == [slice(0, 0)]


@pytest.mark.parametrize("shown", ["terminal", "always"])
def test_a_bar_is_drawn_in_place(capsys, monkeypatch, shown):
    if shown == "terminal":
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    else:
        progress.show_always()
    assert list(progress.progress_bar(range(3), desc="counting")) == [0, 1, 2]
    assert capsys.readouterr().err.startswith("\rcounting:")
