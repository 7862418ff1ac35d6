"""Pre-training data by Beam is that of the local tool, however the work is divided."""

import dataclasses
import pathlib
import random

import pytest

pytest.importorskip("apache_beam", reason="needs apache-beam")

from apache_beam.options.pipeline_options import PipelineOptions

from bert_tf.beam import example_steps, pretraining_data
from bert_tf.beam.example_steps import ExampleSettings
from bert_tf.beam.file_access import match_files
from bert_tf.beam.line_formats import LineFormat
from bert_tf.beam.pretraining_data import copy_outputs, scan_corpus, write_examples
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError, UserError
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from tests.beam import remote_files
from tests.beam.corpora import (
    CHUNK_BYTES,
    OPTIONS,
    VOCABULARY,
    as_json,
    as_text,
    as_wiki,
    local_outputs,
    random_documents,
)

SETTINGS = ExampleSettings(
    VOCABULARY,
    options=OPTIONS,
    dupe_factor=2,
    random_seed=3,
    chunk_bytes=CHUNK_BYTES,
    num_files=2,
    partition_bytes=20_000,
    block_bytes=300,
)


def in_this_process():
    return PipelineOptions(["--runner=DirectRunner", "--allow_unsafe_triggers"])


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "work").mkdir()
    return Workspace(str(tmp_path / "work"))


def scan(workspace, paths, settings=SETTINGS, keep_going=False):
    files = match_files(list(map(str, paths)))
    options = in_this_process()
    corpus, letters = scan_corpus(workspace, files, settings, options, keep_going, max_retries=0)
    return corpus, list(letters)


def write(workspace, corpus, settings=SETTINGS):
    paths, summary = write_examples(workspace, corpus, settings, in_this_process(), max_retries=0)
    return [open(path, "rb").read() for path in paths], summary


def test_the_same_bytes_as_the_local_tool(tmp_path, workspace):
    paths = [tmp_path / f"{n}.txt" for n in range(3)]
    for seed, path in enumerate(paths):
        path.write_text(as_text(random_documents(5, seed)))
    corpus, letters = scan(workspace, paths)
    assert not letters
    assert len(corpus.chunks) > 2 and corpus.cuts
    outputs, summary = write(workspace, corpus)
    assert outputs == local_outputs(paths, tmp_path)
    assert summary.examples > 30
    kept = {path.name.split("-")[0] for path in (tmp_path / "work").glob("*.[0-9a-f]*")}
    assert not kept & {"tokens", "run"}, "no longer needed"


@pytest.mark.parametrize("block_bytes", [40, 1000, 100_000])
def test_chunks_do_not_depend_on_blocks(tmp_path, workspace, block_bytes):
    rng = random.Random(block_bytes)
    paths = [tmp_path / f"{n}.txt" for n in range(4)]
    for path in paths:
        kinds = ["word1", "word2 " * 9, "x" * 300, "", "\u3000", "\t "]
        lines = rng.choices(kinds, [9, 9, 9, 1, 1, 1], k=60)
        path.write_text("\n".join(lines) + rng.choice(["", "\n"]))
    paths[2].write_text("")
    corpus, _ = scan(workspace, paths, dataclasses.replace(SETTINGS, block_bytes=block_bytes))
    assert corpus == scan_documents(paths, CHUNK_BYTES, progress=False)
    assert corpus.cuts


@pytest.mark.parametrize(
    ("name", "encode"), [("wiki", as_wiki), pytest.param("json", as_json, marks=pytest.mark.full)]
)
def test_other_formats_give_the_records_of_the_text(tmp_path, workspace, name, encode):
    documents = [document for document in random_documents(12) if len(document) < 60]
    (tmp_path / "AA").mkdir()
    for number, part in enumerate((documents[:4], documents[4:])):
        (tmp_path / f"{number}.txt").write_text(as_text(part))
        (tmp_path / "AA" / f"wiki_{number:02}").write_text(encode(part))
    settings = dataclasses.replace(SETTINGS, line_format=LineFormat(name))
    corpus, _ = scan(workspace, [tmp_path / "AA"], settings)
    outputs, _ = write(workspace, corpus, settings)
    assert outputs == local_outputs([tmp_path / "0.txt", tmp_path / "1.txt"], tmp_path)


def test_remote_files(tmp_path, monkeypatch):
    monkeypatch.setattr(remote_files, "FOLDER", str(tmp_path / "bucket"))
    folder = tmp_path / "bucket" / "text" / "AA"
    folder.mkdir(parents=True)
    for number in range(2):
        (folder / f"{number}.txt").write_text(as_text(random_documents(3, number)))
    expected = local_outputs([folder / "0.txt", folder / "1.txt"], tmp_path)
    workspace = Workspace.of("test://out", "a run")
    with workspace.locked():
        corpus, _ = scan(workspace, ["test://text"])
        paths, _ = write_examples(workspace, corpus, SETTINGS, in_this_process(), max_retries=0)
        copy_outputs(paths, ["test://out/0", "test://out/1"])
    workspace.remove()
    left = sorted(path for path in (tmp_path / "bucket" / "out").rglob("*") if path.is_file())
    assert [path.name for path in left] == ["0", "1"]
    assert [path.read_bytes() for path in left] == expected


def test_a_run_that_ends_while_it_copies_is_continued(tmp_path, workspace, monkeypatch):
    (tmp_path / "a.txt").write_text(as_text(random_documents(6)))
    corpus, _ = scan(workspace, [tmp_path / "a.txt"])
    targets = [str(tmp_path / "out" / str(number)) for number in range(2)]
    real = pretraining_data.copy
    copied = []

    def copy(source, target):
        if copied:
            raise OSError("the process is lost")
        copied.append(target)
        real(source, target)

    monkeypatch.setattr(pretraining_data, "copy", copy)
    paths, _ = write_examples(workspace, corpus, SETTINGS, in_this_process(), max_retries=0)
    with pytest.raises(OSError, match="is lost"):
        copy_outputs(paths, targets)
    monkeypatch.setattr(pretraining_data, "copy", real)
    paths, _ = write_examples(workspace, corpus, SETTINGS, in_this_process(), max_retries=0)
    copy_outputs(paths, targets)
    workspace.remove()
    found = [pathlib.Path(path).read_bytes() for path in targets]
    assert found == local_outputs([tmp_path / "a.txt"], tmp_path)


def test_damaged_lines_are_left_out_or_refused(tmp_path, workspace):
    lines = as_text(random_documents(6)).encode().splitlines(keepends=True)
    good, damaged = tmp_path / "good.txt", tmp_path / "damaged.txt"
    good.write_bytes(b"".join(lines))
    # One between two lines of a document, one alone between blank lines, one without a line end.
    places = [1, next(n for n, line in enumerate(lines) if line == b"\n") + 1, len(lines)]
    for place in reversed(places):
        lines.insert(place, b"word1 \xff\n" if place < len(lines) else b"\xff")
    damaged.write_bytes(b"".join(lines))
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere")
    paths = [damaged, tmp_path / "gone.txt"]
    with pytest.raises(DataError, match=rf"damaged.txt, line at byte {len(lines[0])} must be UTF"):
        scan(Workspace(str(tmp_path)), paths)
    corpus, letters = scan(workspace, paths, keep_going=True)
    content = damaged.read_bytes()
    found = [content[letter.position :][:8] for letter in letters[:3]]
    assert found == [b"word1 \xff\n", b"word1 \xff\n", b"\xff"]
    assert [letter.position for letter in letters[3:]] == [None]
    assert letters[0].element == "word1 \\xff\n"
    texts = [text for chunk in corpus.chunks for text in LineFormat().documents(chunk)]
    expected = LineFormat().documents(scan_documents([good], progress=False).chunks[0])
    assert sum(texts, []) == sum(expected, [])


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b'{"text": 3}', b"{}", b"\xff", b'{"text": "\\ud800"}', b"[" * 100_000]
)
def test_damaged_json(line):
    with pytest.raises(DataError, match="a.json, line at byte 7 must be"):
        LineFormat("json").parse(line, "a.json", 7)


def test_an_interrupted_run_is_continued(tmp_path, workspace, monkeypatch):
    path = tmp_path / "in.txt"
    path.write_text(as_text(random_documents(5)))
    corpus, _ = scan(workspace, [path])
    made = []
    make, write_shares = example_steps.make_records, example_steps.write_shares

    def record_and_make(chunk, vocabulary, options, seed):
        made.append(seed)
        if len(made) == 2:
            raise OSError("the disk is full")
        return make(chunk, vocabulary, options, seed)

    def fail_to_write(*_):
        raise OSError("the disk is full again")

    monkeypatch.setattr(example_steps, "make_records", record_and_make)
    monkeypatch.setattr(example_steps, "write_shares", fail_to_write)
    with pytest.raises(UserError, match="(?s)Received, 1 times: .*the disk is full"):
        write(workspace, corpus)
    with pytest.raises(UserError, match="the disk is full again"):
        write(workspace, corpus)
    assert len(made) == 2 * len(corpus.chunks) + 1, "only the failed pass was made again"
    monkeypatch.setattr(example_steps, "write_shares", write_shares)
    assert write(workspace, corpus)[0] == local_outputs([path], tmp_path)
    assert len(made) == 2 * len(corpus.chunks) + 1


def test_text_without_a_word(tmp_path, workspace):
    (tmp_path / "in.txt").write_text("\n \n")
    with pytest.raises(DataError, match="Received: files without a word"):
        scan(workspace, [tmp_path / "in.txt"])


def test_too_little_text(tmp_path, workspace):
    (tmp_path / "in.txt").write_text("word1\n")
    corpus, _ = scan(workspace, [tmp_path / "in.txt"])
    with pytest.raises(DataError, match="Received: 1 documents with words"):
        write(workspace, corpus)
