"""What holds for every program: its manual, and wrong flags at once."""

import pathlib
import re
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY

TOOLS = sorted(
    path.stem
    for path in (REPOSITORY / "tools").glob("*.py")
    if "tool.run(" in path.read_text(encoding="utf-8")
)
# Of what takes seconds to import.
HEAVY = ("tensorflow", "keras", "sklearn", "matplotlib", "torch")


def run(code_or_tool, *flags):
    return subprocess.run(
        [sys.executable, code_or_tool, *flags],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("tool", TOOLS)
def test_help_lists_every_flag_that_the_program_reads(tool):
    shown = run(f"tools/{tool}.py", "--help").stdout
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+)", shown, re.MULTILINE))
    source = pathlib.Path(REPOSITORY / "tools" / f"{tool}.py").read_text(encoding="utf-8")
    read = set(re.findall(r"FLAGS\.(\w+)\b(?!\()", source))
    assert listed and read <= listed, read - listed


def test_help_keeps_the_backslashes_of_its_examples():
    shown = run("tools/run_classifier.py", "--help").stdout
    assert "--data_dir=SST-2 \\\n" in shown


def test_help_of_a_tool_with_shared_flags():
    shown = run("tools/run_classifier.py", "--help").stdout
    for flag in ("--task_name", "--data_dir", "--lora_rank", "--output_dir"):
        assert f"  {flag}:" in shown
    assert "--logtostderr" not in shown and "--pdb" not in shown  # absl's own


@pytest.mark.parametrize("tool", TOOLS)
def test_a_wrong_flag_is_found_before_anything_heavy_is_imported(tool):
    code = (
        "import importlib.abc, runpy, sys\n"
        "class Refused(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name in {HEAVY!r}: raise AssertionError(name + ' was imported')\n"
        "sys.meta_path.insert(0, Refused())\n"
        f"sys.path.insert(0, 'tools'); sys.argv = ['tools/{tool}.py', '--no_such_flag=1']\n"
        f"runpy.run_path('tools/{tool}.py', run_name='__main__')\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert "Unknown command line flag 'no_such_flag'" in result.stderr, result.stderr
    assert result.returncode == 1


def test_a_switch_with_its_value_apart():
    result = run(
        "tools/build_vocab.py",
        "--do_lower_case",
        "False",
        "--input_file=a",
        "--output_file=b",
        "--vocab_size=10",
    )
    assert result.returncode == 1 and result.stdout == ""
    assert "Received: ['False']" in result.stderr and "--do_train=False" in result.stderr
    assert len(result.stderr.splitlines()) == 1
