"""Budgets in tests/budgets.json: the way of a call, lines per room. Growth needs an argument.

Whoever raises a number says in the commit why the package is better for it.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.extension_points import extension_points

BUDGETS = json.loads((REPOSITORY / "tests" / "budgets.json").read_text())


@pytest.fixture(scope="module")
def found():
    """What `tests.way_of_a_call` prints in a process of its own: it makes TensorFlow eager."""
    command = [sys.executable, "-m", "tests.way_of_a_call"]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "BERT_TF_OPS": "native"}
    result = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


@pytest.mark.parametrize("act", BUDGETS["walk"])
def test_the_way_of_a_call(found, act):
    for name, most in BUDGETS["walk"][act].items():
        assert found["walk"][act][name] <= most, name


@pytest.mark.parametrize("name", ["ancestors_of_a_classifier", "modules_of_a_classifier"])
def test_what_a_classifier_needs(found, name):
    assert found[name] <= BUDGETS[name]


def test_extension_points():
    """What a task may override of our base classes; `python -m tests.extension_points` lists it."""
    assert len(extension_points()) <= BUDGETS["extension_points"]


@pytest.mark.parametrize("room", BUDGETS["lines"])
def test_lines(room):
    """Lines of Python in a room of the package; "." is all of them."""
    files = (REPOSITORY / "bert_tf" / room).rglob("*.py")  # without tools/, which is a link
    assert sum(len(path.read_text().splitlines()) for path in files) <= BUDGETS["lines"][room]
