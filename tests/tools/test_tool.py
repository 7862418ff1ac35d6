"""What `tool.run` does for every program."""

import subprocess
import sys

import pytest

from bert_tf.errors import UserError
from bert_tf.tools.common import tool


@pytest.mark.parametrize("lines", [1, 100_000])
def test_an_output_that_nobody_reads(lines):
    program = f"from bert_tf.tools.common import tool; tool.run(lambda: print('line\\n' * {lines}))"
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", program], **options) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (tool.UNREAD, "")


def test_a_broken_pipe_of_the_program_itself_is_an_error():
    program = (
        "from bert_tf.tools.common import tool\ndef main(): raise BrokenPipeError\ntool.run(main)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert result.returncode == 1 and "BrokenPipeError" in result.stderr


def test_modules_are_imported_first():
    program = "import sys; from bert_tf.tools.common import tool\n"
    program += "tool.run(lambda: print('sched' in sys.modules))"
    for name, shown in (("sched", "True"), ("no_such_module", "--import_modules=no_such_module")):
        command = [sys.executable, "-c", program, f"--import_modules={name}"]
        result = subprocess.run(command, capture_output=True, text=True)
        assert shown in result.stdout + result.stderr


def test_modules_may_be_in_the_working_directory(tmp_path):
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "program"  # as `bert-tf`: its directory begins sys.path
    program.write_text("from bert_tf.tools.common import tool\ntool.run(lambda: None)\n")
    (tmp_path / "own_classes.py").write_text("print('registered')\n")
    command = [sys.executable, program, "--import_modules=own_classes"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (0, "registered\n"), result.stderr


def test_output_files(tmp_path):
    tool.require_output_file(str(tmp_path / "new" / "a.txt"), "output_file")
    assert (tmp_path / "new").is_dir()
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path)
    tool.require_output_file(str(tmp_path / "a.txt"), "output_file")
    with pytest.raises(UserError, match="--output_file must be a file. Received: the directory"):
        tool.require_output_file(str(tmp_path), "output_file")
    inputs = [str(tmp_path / "link" / "a.txt")]
    with pytest.raises(UserError, match="--output_file must not be an input file"):
        tool.require_output_file(str(tmp_path / "a.txt"), "output_file", inputs)
    with pytest.raises(UserError, match="must be a file. Received: --output_file=$"):
        tool.require_output_file("", "output_file")
    with pytest.raises(UserError, match="must be a directory. Received: --output_dir=$"):
        tool.require_writable("", "output_dir")
