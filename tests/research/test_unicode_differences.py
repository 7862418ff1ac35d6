"""The tool that names the code points on which Unicode versions differ."""

import sys

import pytest
import tensorflow as tf

from bert_tf.text import unicode_tables
from research import make_unicode_data
from tests.conftest import REPOSITORY
from tests.text import oracle
from tests.tools.running import run


def code_points(cell):
    number, _, spans = cell.partition(": ")
    found = set()
    for span in spans.split():
        first, _, last = span.removeprefix("U+").partition("-")
        found.update(range(int(first, 16), int(last or first, 16) + 1))
    assert int(number) == len(found)
    return found


def rows(shown):
    return [line.strip("| ").split(" | ") for line in shown.splitlines()[2:]]


@pytest.mark.full
def test_this_python_is_compared_as_the_oracle_compares_it():
    shown = run("research.unicode_differences", f"--python={sys.executable}", "--notensorflow")
    assert shown.returncode == 0, shown.stderr
    named = set().union(*(code_points(cells[3]) for cells in rows(shown.stdout)))
    assert {ord(char) for char in oracle.changed_code_points()} <= named
    if unicode_tables.unicode_data().version == make_unicode_data.unicodedata.unidata_version:
        assert not named


@pytest.mark.full
def test_the_documentation_has_what_tensorflow_says():
    shown = run("research.unicode_differences")
    assert shown.returncode == 0, shown.stderr
    found = rows(shown.stdout)
    assert {name for cells in found for name in cells[2].split(", ")} == {"ICU", "RE2"}
    text = (REPOSITORY / "docs" / "tokenization.md").read_text(encoding="utf-8")
    if f"TensorFlow {tf.__version__}" not in text:
        return  # another TensorFlow has another ICU and RE2 than the table's
    for cells in found:
        assert f" | {cells[3]} |" in text, "run research/unicode_differences.py again"


def test_a_missing_python_is_named():
    shown = run("research.unicode_differences", "--python=no-such-python", "--notensorflow")
    assert shown.returncode == 1
    assert "--python=no-such-python" in shown.stderr and "Traceback" not in shown.stderr
