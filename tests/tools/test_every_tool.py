"""What holds for every program: its manual, and wrong flags at once."""

import re

import pytest

from tests.document_blocks import docstring_examples
from tests.tools.running import CHECKOUT_PROGRAMS, TOOLS, run, run_program, source_of

PROGRAMS = [*TOOLS, *CHECKOUT_PROGRAMS]

# Of what takes seconds to import.
HEAVY = ("tensorflow", "keras", "sklearn", "matplotlib", "torch")


@pytest.mark.parametrize(
    "tool", [*TOOLS, *(pytest.param(p, marks=pytest.mark.full) for p in CHECKOUT_PROGRAMS)]
)
def test_help_lists_every_flag_and_imports_nothing_heavy(tool):
    """The one real start of every program, in a checkout."""
    start = [f"tools/{tool}.py"] if tool in TOOLS else ["-m", tool]
    result = run_program("-Ximporttime", *start, "--help")
    listed = set(re.findall(r"^  --(?:\[no\])?(\w+)", result.stdout, re.MULTILINE))
    assert not listed & {"verbosity", "logtostderr", "pdb", "only_check_args"}  # absl's
    # tests/test_documents.py parses the flags of the example.
    examples = docstring_examples(tool)
    assert re.search(rf"^(bert-tf|python -m) {tool}\b", examples, re.MULTILINE)
    assert examples.splitlines()[0] in result.stdout
    assert not re.search(r"\S {3,}--", examples), "lines are joined: make the docstring raw"
    lines = result.stderr.splitlines()
    assert all(line.startswith("import time:") for line in lines), result.stderr
    source = source_of(tool).read_text(encoding="utf-8")
    read = set(re.findall(r"FLAGS\.(\w+)\b(?!\()", source))
    assert listed and read <= listed, read - listed
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", result.stderr, re.MULTILINE))
    assert "bert_tf.tools.common.tool" in imported and not imported & set(HEAVY)


def test_help_of_a_tool_with_shared_flags():
    shown = run("run_classifier", "--help").stdout
    for flag in ("--task_name", "--data_dir", "--lora_rank", "--output_dir"):
        assert f"\n  {flag}=" in shown


@pytest.mark.parametrize(
    "tool",
    [
        # `tool.run` reads the flags of all programs.
        pytest.param(
            tool, marks=() if tool in ("run_classifier", "benchmarks") else pytest.mark.full
        )
        for tool in PROGRAMS
    ],
)
def test_a_wrong_flag_is_found(tool):
    result = run(tool, "--no_such_flag=1")
    assert "Unknown command line flag 'no_such_flag'" in result.stderr, result.stderr
    assert result.returncode == 1


def test_a_switch_with_its_value_apart():
    result = run(
        "build_vocab",
        "--do_lower_case",
        "False",
        "--input_file=a",
        "--output_file=b",
        "--vocab_size=10",
    )
    assert result.returncode == 1 and result.stdout == ""
    assert "Received: ['False']" in result.stderr and "--do_train=False" in result.stderr
    assert len(result.stderr.splitlines()) == 1
