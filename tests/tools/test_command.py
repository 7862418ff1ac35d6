"""`bert-tf`: its list of programs, its suggestions, and that it runs what `python tools/` runs."""

import re

import pytest
from absl import flags

from bert_tf.tools.common import command, programs, tool_help
from tests.conftest import REPOSITORY
from tests.tools.running import run, run_program


def shown_by(monkeypatch, capsys, *arguments):
    """What `bert-tf ARGUMENTS` prints in this process, and its exit status."""
    monkeypatch.setattr(command.sys, "argv", ["bert-tf", *arguments])
    status = 0
    try:
        command.main()
    except SystemExit as end:
        status = end.code or 0
    return status, capsys.readouterr()


def test_the_list_has_every_program_with_its_first_line(monkeypatch, capsys):
    status, shown = shown_by(monkeypatch, capsys, "--help")
    listed = re.findall(r"^  (\w+) +(\S.*)$", shown.out, re.MULTILINE)
    assert status == 0 and [name for name, _ in listed] == list(programs.NAMES)
    for name, line in listed:
        source = programs.file_of(name).read_text(encoding="utf-8")
        assert re.match(rf'r?"""{re.escape(line)}\n', source), name


def test_without_a_program_it_shows_the_list_and_fails(monkeypatch, capsys):
    status, shown = shown_by(monkeypatch, capsys)
    assert status == 1 and shown.out == command.listing() + "\n"


def test_every_program_has_one_group():
    files = (REPOSITORY / "tools").glob("[!_]*.py")
    assert sorted(programs.NAMES) == sorted(path.stem for path in files)


@pytest.mark.parametrize(
    "name, suggested", [("run-clasifier", "run_classifier"), ("squad", "run_squad"), ("x", None)]
)
def test_an_unknown_name(monkeypatch, capsys, name, suggested):
    status, shown = shown_by(monkeypatch, capsys, name, "--do_train")
    assert status == 1 and shown.out == "" and f"Received: {name}." in shown.err
    assert ("Did you mean" in shown.err) == (suggested is not None)
    assert suggested is None or suggested in shown.err.partition("Did you mean")[2]


def test_help_imports_little():
    result = run_program("-Ximporttime", "-m", "bert_tf", "--help")
    assert result.returncode == 0 and result.stdout == command.listing() + "\n"
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", result.stderr, re.MULTILINE))
    assert "bert_tf.tools.common.command" in imported
    assert not imported & {"absl", "keras", "numpy", "tensorflow", "tqdm"}


def test_help_into_head():
    code = "import sys, bert_tf.tools.common.command as c; sys.argv[1:] = ['--help']; c.main()"
    script = f'{command.sys.executable} -c "{code}" | true; echo ${{PIPESTATUS[0]}}'
    result = run_program("-c", f"import os; os.execv('/bin/bash', ['bash', '-c', {script!r}])")
    assert result.stderr == "" and result.stdout == "0\n"


@pytest.mark.parametrize("arguments", [("--help",), ("--run=a=absent",)])
def test_it_runs_what_a_checkout_runs(arguments):
    """With hyphens in the program's name."""
    of_command = run_program("-m", "bert_tf", "compare-runs", *arguments)
    of_file = run_program("tools/compare_runs.py", *arguments)
    assert of_command.returncode == of_file.returncode
    assert (of_command.stdout, of_command.stderr) == (of_file.stdout, of_file.stderr)


def test_the_sections_of_a_help():
    """Also where TensorFlow, which has flags of its own, is imported already."""
    result = run("run_classifier", "--help")
    headings = re.findall(r"\n\n([A-Z].*):\n\n  --", result.stdout)
    assert headings[:2] == ["Required flags", "Flags of this program"]
    assert {"Task and its files", "Model to start from", "LoRA", "Augmentation"} < set(headings)
    assert headings[-1] == "Accepted and ignored" and result.returncode == 0
    assert re.search(r"Required flags:\n\n  --output_dir=", result.stdout)
    assert re.search(r"\n  --\[no\]do_eval\n      .* \(default: false\)\n", result.stdout)
    assert "\n  --predict_split=dev|test\n" in result.stdout


@pytest.mark.parametrize(
    "define, options, expected",
    [
        ("integer", {"default": 3, "lower_bound": 1}, "=INTEGER (default: 3; a positive integer)"),
        ("float", {"default": None}, "=NUMBER"),
        ("string", {"default": ""}, "=VALUE"),
        ("list", {"default": ["a", "b"]}, "=VALUE,VALUE,... (default: a,b)"),
        ("enum", {"default": "a", "enum_values": ["a", "b"]}, "=a|b (default: a)"),
        ("enum", {"default": None, "enum_values": [*"abcde"]}, "=VALUE One of: a, b, c, d, e."),
        ("multi_string", {"default": None}, "=VALUE (may be repeated)"),
        (
            "multi_enum",
            {"default": ["a"], "enum_values": ["a", "b"]},
            "=a|b (default: a; may be repeated)",
        ),
    ],
)
def test_the_lines_of_a_flag(define, options, expected):
    values = flags.FlagValues()
    getattr(flags, f"DEFINE_{define}")("name", help="Text.", flag_values=values, **options)
    shown = tool_help.describe(values["name"])
    value, _, rest = expected.partition(" ")
    assert shown == f"  --name{value}\n      Text." + (f" {rest}" if rest else "")
