"""Files that are replaced together: real kills, several writers, what cannot be undone."""

import contextlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from bert_tf import files
from bert_tf.errors import CheckpointError

NEW = {"a.txt": "new", "b.txt": "new", "folder/c.txt": "new"}
OLD = {"a.txt": "old", "b.txt": "old", "mine.txt": "mine"}

# Without the package's own imports, which take seconds.
PROGRAM = """
import json, os, signal, sys, types

package = types.ModuleType("bert_tf")
package.__path__ = [sys.argv[1]]
sys.modules["bert_tf"] = package
from bert_tf import files

directory, contents, renames = sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4])

def kill(event, arguments):
    global renames
    if event == "os.rename":
        renames -= 1
        if renames < 0:
            os.kill(os.getpid(), signal.SIGKILL)

with files.staged_files(directory) as new:
    for name, text in contents.items():
        os.makedirs(os.path.dirname(os.path.join(new, name)), exist_ok=True)
        with open(os.path.join(new, name), "w") as file:
            file.write(text)
    print("written", flush=True)
    sys.stdin.readline()
    sys.addaudithook(kill)
"""


def start(directory, renames=1000, contents=NEW):
    """A process that writes `contents`, waits for a line, and is killed before a rename."""
    program = [sys.executable, "-c", PROGRAM, os.path.dirname(files.__file__), str(directory),
               json.dumps(contents), str(renames)]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


def contents_of(directory):
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*") if path.is_file()
    }


def write(directory, contents):
    for name, text in contents.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


@pytest.mark.parametrize("next_one", ["reader", "writer"])
def test_a_kill_between_two_renames_is_undone_by_the_next(next_one, tmp_path):
    seen = []
    for renames in range(20):
        directory = tmp_path / str(renames)
        directory.mkdir()
        write(directory, OLD)
        process = start(directory, renames)
        process.communicate("\n")
        killed = process.returncode != 0
        seen.append(contents_of(directory).get("a.txt"))
        if next_one == "reader":
            files.recover(directory)
            visible = {k: v for k, v in contents_of(directory).items() if k[0] != "."}
            assert visible == (OLD if killed else {**OLD, **NEW})
            assert (directory / "folder").exists() is not killed
        with files.atomic_path(directory / "other.txt") as path:
            with open(path, "w") as file:
                file.write("other")
        after = {**(OLD if killed else {**OLD, **NEW}), "other.txt": "other"}
        assert contents_of(directory) == after
        if not killed:
            break
    assert not killed and {None, "old", "new"} <= set(seen)  # some kills did hit the middle


def test_a_living_writer_is_left_alone(tmp_path):
    write(tmp_path, OLD)
    living, killed = start(tmp_path), start(tmp_path)
    killed.kill()
    killed.wait()
    with files.atomic_path(tmp_path / "a.txt") as path:
        with open(path, "w") as file:
            file.write("newer")
    assert len([path for path in tmp_path.iterdir() if path.name[0] == "."]) == 1
    assert contents_of(tmp_path)["a.txt"] == "newer"
    living.communicate("\n")
    assert living.returncode == 0 and contents_of(tmp_path) == {**OLD, **NEW}


@pytest.mark.parametrize("damage", [
    lambda folder: (folder / "journal.json").write_text("{"),
    lambda folder: (folder / "journal.json").write_text("{}"),
    lambda folder: ((folder / "lock").unlink(), (folder / "lock").mkdir()),
])
def test_what_cannot_be_undone_is_refused(damage, tmp_path):
    write(tmp_path, OLD)
    start(tmp_path, 4).communicate("\n")
    damage(tmp_path / ".bert_tf-replacing")
    with pytest.raises(CheckpointError, match="files of one save were expected.*By hand: move"):
        files.recover(tmp_path)
    with pytest.raises(CheckpointError, match="files of one save were expected"):
        with files.staged_files(tmp_path):
            pass
    assert (tmp_path / ".bert_tf-replacing" / "old" / "a.txt").read_text() == "old"


@pytest.mark.parametrize("name", ["../victim.txt", "ABSOLUTE", "link/victim.txt", "a/..", ""])
@pytest.mark.parametrize("key", ["replaced", "added", "folders"])
def test_a_strangers_journal_moves_nothing_outside(name, key, tmp_path):
    (tmp_path / "victim.txt").write_text("mine")
    directory = tmp_path / "directory"
    hidden = directory / ".bert_tf-replacing"
    write(hidden, {"old/victim.txt": "theirs", "new/other": "", "lock": ""})
    (directory / "link").symlink_to(tmp_path)
    (hidden / "old" / "link").symlink_to(tmp_path)
    name = name.replace("ABSOLUTE", str(tmp_path / "victim.txt"))
    journal = {"replaced": [], "added": [], "folders": [], key: [name]}
    (hidden / "journal.json").write_text(json.dumps(journal))
    with pytest.raises(CheckpointError, match="outside of the directory"):
        files.recover(directory)
    assert (tmp_path / "victim.txt").read_text() == "mine"


@pytest.mark.parametrize("link", [".bert_tf-replacing", ".bert_tf-other"])
def test_a_strangers_link_is_not_followed(link, tmp_path):
    (tmp_path / "directory").mkdir()
    write(tmp_path / "victim", {"old/a.txt": "mine"})
    before = contents_of(tmp_path / "victim")
    (tmp_path / "directory" / link).symlink_to(tmp_path / "victim")
    with contextlib.suppress(CheckpointError):
        with files.staged_files(tmp_path / "directory") as new:
            write(pathlib.Path(new), NEW)
    assert contents_of(tmp_path / "victim") == before


def test_a_directory_is_replaced_as_a_whole_where_nothing_can_be_exchanged(tmp_path, monkeypatch):
    for exchange in (files._exchange, lambda first, second: False):
        monkeypatch.setattr(files, "_exchange", exchange)
        for names in (["a", "b"], ["c"]):
            with files.atomic_path(tmp_path / "folder") as path:
                write(pathlib.Path(path), dict.fromkeys(names, "x"))
        assert contents_of(tmp_path) == {"folder/c": "x"}
    with pytest.raises(IsADirectoryError, match="where a file must be written"):
        with files.atomic_path(tmp_path / "folder") as path:
            open(path, "w").close()
    assert contents_of(tmp_path) == {"folder/c": "x"}
