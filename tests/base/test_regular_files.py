"""Only regular files are opened: a named pipe in the place of any file is refused at once."""

import ast
import contextlib
import os
import threading

import pytest

from bert_tf.base import regular_files
from bert_tf.errors import UserError
from tests.conftest import REPOSITORY
from tests.fuzz.formats import FORMATS

_SECONDS = 5  # after which a reader that waits gets the end of the file
# What opens a file by its path, and the modules that have checked it before.
_OPENERS = {
    "open": {"base.regular_files", "beam.file_access"},
    "os.open": {"base.regular_files", "base.files", "command"},
    "np.load": {"search.index_files", "tasks.pretraining.create_data", "beam.example_steps"},
    "np.memmap": set(),
    "np.fromfile": set(),
    "h5py.File": {"checkpoints.readers.h5_file"},  # a view of a mapped file
    "zipfile.ZipFile": {"checkpoints.readers.stored_zip"},
    "safe_open": {"checkpoints.readers.safetensors_source"},
    "load_file": {"training.checkpointing.checkpoint_files"},
    "tf.data.TFRecordDataset": {"tasks.pretraining.records"},
    "tf.train.load_checkpoint": set(),
    "tf.saved_model.load": {"server.served_model"},
    "pq.ParquetFile": set(),
}


@contextlib.contextmanager
def named_pipe(path):
    """Puts a named pipe in the place of a file, and the file back at the end."""
    kept = f"{path}.kept"
    os.rename(path, kept)
    os.mkfifo(path)

    def end():
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    timer = threading.Timer(_SECONDS, end)
    timer.start()
    try:
        yield
        assert timer.is_alive(), "the reader waited for a writer"
    finally:
        timer.cancel()
        os.replace(kept, path)


@pytest.mark.parametrize("name", list(FORMATS))
def test_no_format_waits_for_a_named_pipe(name, tmp_path):
    format = FORMATS[name]
    format.write(tmp_path / "sample")
    for file in format.lies:
        with named_pipe(tmp_path / "sample" / file):
            with contextlib.suppress(UserError):  # what needs no such file opens without it
                format.open(tmp_path / "sample")


def test_what_is_opened(tmp_path):
    path = tmp_path / "file"
    path.write_text("text")
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe")
    with regular_files.open_regular(tmp_path / "link", "r", encoding="utf-8") as file:
        assert file.read() == "text"
    received = {
        "": "Is a directory",
        "pipe": "not a regular",
        "a\0": "a NUL",
        "none": "No such file",
    }
    for name, message in received.items():
        for check in (regular_files.open_regular, regular_files.require_regular):
            with pytest.raises(OSError, match=message) as caught:
                check(tmp_path / name)
            assert caught.value.filename and caught.value.strerror
    reader, writer = os.pipe()
    os.write(writer, b"typed")
    os.close(writer)
    with regular_files.open_input(f"/dev/fd/{reader}") as file:
        assert file.read() == b"typed"
    os.close(reader)


def test_folders_that_lead_around_in_circles(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(tmp_path)
    regular_files.require_regular_below(tmp_path)
    (tmp_path / "c").mkdir()
    os.mkfifo(tmp_path / "c" / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        regular_files.require_regular_below(tmp_path)


def _reads(call):
    """Returns whether a call of `open` has no mode that writes."""
    modes = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    return not any(
        isinstance(mode, ast.Constant) and set(mode.value) & set("wax+") for mode in modes
    )


def test_files_are_opened_in_one_module():
    package = REPOSITORY / "bert_tf"
    for path in sorted(package.rglob("*.py")):
        module = ".".join(path.relative_to(package).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if name in _OPENERS and (name != "open" or _reads(node)):
                assert module in _OPENERS[name], f"{module}, line {node.lineno}: {name}"
