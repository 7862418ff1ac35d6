"""Files that are replaced together: real kills, several writers, what cannot be undone."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from bert_tf.base import files
from bert_tf.errors import CheckpointError, UserError

NEW = {"a.txt": "new", "b.txt": "new", "folder/c.txt": "new"}
OLD = {"a.txt": "old", "b.txt": "old", "mine.txt": "mine"}

# Without the package's own imports, which take seconds.
PROGRAM = """
import json, os, signal, sys, types

package = types.ModuleType("bert_tf")
package.__path__ = [sys.argv[1]]
sys.modules["bert_tf"] = package
from bert_tf.base import files

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
    program = [
        sys.executable,
        "-c",
        PROGRAM,
        os.path.dirname(os.path.dirname(files.__file__)),
        str(directory),
        json.dumps(contents),
        str(renames),
    ]
    process = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "written\n"
    return process


def contents_of(directory):
    return {
        str(path.relative_to(directory)): path.read_text()
        for path in directory.rglob("*")
        if path.is_file()
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


def test_an_empty_path_is_not_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.txt").write_text("a")
    with pytest.raises(UserError, match="Received: path=''"), files.atomic_path("") as path:
        os.mkdir(path)
    assert (tmp_path / "mine.txt").read_text() == "a"


def test_a_full_disk_and_a_nul_name_the_path(tmp_path):
    for context in (files.atomic_path(tmp_path / "a.txt"), files.staged_files(tmp_path)):
        with pytest.raises(OSError, match="No space left on device: .*test_a_full_disk"):
            with context as new:
                place = os.path.join(new, "full") if os.path.isdir(new) else new
                os.symlink("/dev/full", place)
                with open(place, "w") as file:
                    file.write("text")
    for context in (files.atomic_path("a\0b"), files.staged_files("a\0b")):
        with pytest.raises(UserError, match=r"Received: path='a\\x00b'"), context:
            pass


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


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "journal.json").write_text("{"),
        lambda folder: (folder / "journal.json").write_text("{}"),
        lambda folder: ((folder / "lock").unlink(), (folder / "lock").mkdir()),
    ],
)
def test_what_cannot_be_undone_is_refused(damage, tmp_path):
    write(tmp_path, OLD)
    start(tmp_path, 4).communicate("\n")
    damage(tmp_path / ".bert_tf-replacing")
    with pytest.raises(CheckpointError, match="must contain the files of one save.*or move"):
        files.recover(tmp_path)
    with pytest.raises(CheckpointError, match="must contain the files of one save"):
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


def outside_through_a_link_that_an_earlier_move_made(directory, hidden, victim):
    (directory / "l").symlink_to(".")
    (hidden / "old" / "l").mkdir()
    (hidden / "old" / "l" / "p").symlink_to(victim)
    return {"replaced": ["l/p", "p/a.txt"]}


def outside_through_an_old_link(directory, hidden, victim):
    shutil.move(hidden / "old" / "p", hidden / "old" / "q")
    (hidden / "old" / "p").symlink_to(victim)
    return {"replaced": ["p", "p/a.txt"]}


def outside_through_a_new_link_that_an_earlier_move_made(directory, hidden, victim):
    name = ".bert_tf-replacing/new/q"
    (hidden / "old" / name).parent.mkdir(parents=True)
    (hidden / "old" / name).symlink_to(victim)
    write(directory, {"q/b.txt": "theirs"})
    return {"replaced": [name], "added": ["q/b.txt"]}


def outside_through_the_new_ones(directory, hidden, victim):
    shutil.rmtree(hidden / "new")
    (hidden / "new").symlink_to(victim)
    return {"added": ["mine.txt"]}


def outside_through_the_old_ones(directory, hidden, victim):
    shutil.rmtree(hidden / "old")
    (hidden / "old").symlink_to(victim)
    return {"replaced": ["a.txt"]}


def through_a_link_inside(directory, hidden, victim):
    (directory / "l").symlink_to(".")
    return {"added": ["l/mine.txt"]}


@pytest.mark.parametrize(
    "attack",
    [
        outside_through_a_link_that_an_earlier_move_made,
        outside_through_an_old_link,
        outside_through_a_new_link_that_an_earlier_move_made,
        outside_through_the_new_ones,
        outside_through_the_old_ones,
        through_a_link_inside,
    ],
)
def test_a_strangers_journal_follows_no_link(attack, tmp_path):
    directory, victim = tmp_path / "directory", tmp_path / "victim"
    hidden = directory / ".bert_tf-replacing"
    write(victim, {"a.txt": "mine"})
    write(hidden, {"old/p/a.txt": "theirs", "old/a.txt": "theirs", "lock": ""})
    write(directory, {"mine.txt": "theirs"})
    (hidden / "new" / "p").mkdir(parents=True)
    journal = {"replaced": [], "added": [], "folders": [], **attack(directory, hidden, victim)}
    (hidden / "journal.json").write_text(json.dumps(journal))
    with pytest.raises(CheckpointError, match="outside of the directory or leads through a link"):
        files.recover(directory)
    assert contents_of(victim) == {"a.txt": "mine"}
    assert (directory / "mine.txt").exists()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda path: path.symlink_to("/dev/zero"), "a link to another place"),
        (lambda path: path.symlink_to("lock"), "a link to another place"),
        (os.mkfifo, "not a regular file"),
        (os.mkdir, "directory"),
        (lambda path: path.write_text("[" * 100_000), "recursion"),
        (lambda path: path.write_text("[" * 300_000), "lists and objects"),
        (lambda path: path.write_text('{"replaced": [1], "added": [], "folders": []}'), "a string"),
        (lambda path: path.write_text('{"replaced": "ab", "added": [], "folders": []}'), "a list"),
        (lambda path: path.write_text('{"replaced": [], "added": []}'), "`folders`.*nothing"),
        (lambda path: path.write_text('["replaced", "added", "folders"]'), "an object"),
        (lambda path: path.write_bytes(b'"\xff"'), "UTF-8"),
    ],
    ids=[
        "device",
        "link",
        "pipe",
        "folder",
        "nested",
        "many",
        "number",
        "text",
        "key",
        "list",
        "bytes",
    ],
)
def test_a_strangers_journal_is_read_defensively(make, message, tmp_path):
    hidden = tmp_path / ".bert_tf-replacing"
    write(hidden, {"lock": ""})
    make(hidden / "journal.json")
    with pytest.raises(CheckpointError, match=f"must contain the files of one save.*{message}"):
        files.recover(tmp_path)


def test_a_link_in_the_place_of_a_file_is_put_back(tmp_path):
    write(tmp_path, {"shared/a.txt": "shared", "model/b.txt": "old"})
    (tmp_path / "model" / "a.txt").symlink_to("../shared/a.txt")
    (tmp_path / "link").symlink_to("model")
    start(tmp_path / "link", 5).communicate("\n")
    assert (tmp_path / "model" / ".bert_tf-replacing" / "old" / "a.txt").is_symlink()
    files.recover(tmp_path / "link")
    assert os.readlink(tmp_path / "model" / "a.txt") == "../shared/a.txt"
    assert (tmp_path / "shared" / "a.txt").read_text() == "shared"
    assert (tmp_path / "model" / "b.txt").read_text() == "old"


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
    with pytest.raises(IsADirectoryError, match="folder must be a file"):
        with files.atomic_path(tmp_path / "folder") as path:
            open(path, "w").close()
    assert contents_of(tmp_path) == {"folder/c": "x"}
