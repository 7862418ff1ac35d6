"""A corpus from files to files: every row once, each kind of damage in the dead letters."""

import json
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import bert_tf
from bert_tf.beam import prediction
from bert_tf.beam.model_handler import BertModelHandler
from bert_tf.beam.prediction import FinishOutput, OutputPart, PartFile
from bert_tf.beam.readers import read_range
from bert_tf.beam.shards import CORPUS_FORMATS, CorpusEntry, plan_shards
from bert_tf.beam.workspace import DeadLetter
from bert_tf.beam.writers import Layout
from bert_tf.errors import UserError
from tests.beam import remote_files
from tests.beam.test_model_handler import OPTIONS
from tests.beam.test_readers import TEXTS, write
from tests.conformance.task import make
from tests.conformance.tasks import TASKS

SCHEMA = pa.schema([("id", pa.string()), ("text", pa.string())])
ENDINGS = {"text": "txt", **{name: name for name in CORPUS_FORMATS[1:]}}


@pytest.fixture(scope="module")
def encoder():
    return make(TASKS["sentence encoding"])


@pytest.fixture
def predict(encoder, tmp_path, monkeypatch):
    """Runs the pipeline in this process, with the tiny encoder, and returns its counts."""
    monkeypatch.setattr(bert_tf.BertSentenceEncoder, "from_pretrained", lambda path: encoder)

    def run(patterns, name="jsonl", num_shards=2, dead="dead.jsonl", prefix=tmp_path / "out"):
        transform = prediction.PredictCorpus(
            BertModelHandler("model", "encode"),
            plan_shards(list(map(str, patterns)), num_shards=num_shards),
            ("text",),
            Layout(name, "vector", SCHEMA),
            str(prefix),
            prediction.staging_folder(str(prefix)),
            dead and str(tmp_path / dead),
        )
        try:
            return prediction.predict_corpus(transform, PipelineOptions(OPTIONS))
        finally:
            assert not list(tmp_path.glob(".*")), "files that were not moved or removed"

    return run


def outputs(directory, ending="jsonl"):
    """The rows of the output, by the readers of this package."""
    paths = sorted(directory.glob(f"out-*.{ending}"))
    count = len(paths)
    names = [f"out-{number:05d}-of-{count:05d}.{ending}" for number in range(count)]
    assert [path.name for path in paths] == names
    shards = plan_shards(list(map(str, paths)))
    rows = [row for shard in shards for part in shard.ranges for row in read_range(part)]
    assert not any(isinstance(row, DeadLetter) for row in rows)
    return [row.columns for row in rows]


def dead_letters(directory):
    return [json.loads(line) for line in (directory / "dead.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("source", ["text", "jsonl", "csv", "tsv", "parquet", "tfrecord"])
def test_a_round_trip(source, predict, encoder, tmp_path):
    target = {"text": "jsonl", "tsv": "text"}.get(source, source)
    write(tmp_path / f"corpus.{ENDINGS[source]}")
    assert predict([tmp_path / f"corpus.{ENDINGS[source]}"], target, 3) == (len(TEXTS), 0)
    assert dead_letters(tmp_path) == []
    if target == "text":
        lines = [path.read_text("utf-8") for path in sorted(tmp_path.glob("out-*.txt"))]
        found = [line.split("\t") for line in "".join(lines).splitlines()]
        rows = [{"text": text, "vector": vector} for vector, _, text in found]
    else:
        rows = outputs(tmp_path, target)
    assert [row["text"] for row in rows] == TEXTS
    vectors = [row["vector"] for row in rows]
    vectors = [json.loads(one) if isinstance(one, str) else one for one in vectors]
    np.testing.assert_allclose(vectors, encoder.encode(TEXTS), atol=1e-5)
    if target in ("csv", "parquet"):
        assert all(row.keys() == {"id", "text", "vector"} for row in rows)


def test_damage_of_every_kind_goes_to_the_dead_letters(predict, tmp_path):
    write(tmp_path / "good.jsonl")
    more = b'{"text": "one", "n": 1}\n{"text"\n{"text": 7}\n{"txt": "x"}\n{"text": "a\\ud800"}\n'
    (tmp_path / "rows.jsonl").write_bytes(more + b'{"text": "x", "vector": 1}\n{"text": "last"}')
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\nfine\n")
    (tmp_path / "a.csv").write_bytes(b'text\n"un\nfine\n')
    (tmp_path / "a.parquet").write_bytes(b"not Parquet")
    (tmp_path / "a.tfrecord").write_bytes(b"not a record")
    names = ("good.jsonl", "rows.jsonl", "latin.txt", "a.csv", "a.parquet", "a.tfrecord")
    counts = predict([tmp_path / name for name in names], num_shards=3)
    assert counts == (len(TEXTS) + 2 + 1 + 1, 5 + 1 + 1 + 1 + 1)
    texts = [row["text"] for row in outputs(tmp_path)]
    assert texts == [*TEXTS, "one", "last", "fine", "fine"]
    found = {}
    for letter in dead_letters(tmp_path):
        assert letter.keys() == {"source", "position", "element", "error"}
        found[pathlib.Path(letter["source"]).name, letter["position"]] = letter["error"]
    expected = {
        ("rows.jsonl", 24): "must be a JSON object",
        ("rows.jsonl", 32): "must be 1 text. Received: 7",
        ("rows.jsonl", 44): "must have a column 'text'",
        ("rows.jsonl", 57): "surrogates not allowed",
        ("rows.jsonl", 77): "must not have the answer's column",
        ("latin.txt", 0): "must be UTF-8",
        ("a.csv", 5): "must be CSV",
        ("a.parquet", None): "must be a Parquet file",
        ("a.tfrecord", 0): "must begin with its length",
    }
    assert found.keys() == expected.keys()
    assert all(expected[place] in error for place, error in found.items())


def test_a_row_that_the_output_cannot_hold_is_a_dead_letter(predict, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two", "n": 1}\n{"text": "x"}\n')
    assert predict([tmp_path / "a.jsonl"], "parquet") == (2, 1)
    assert [row["text"] for row in outputs(tmp_path, "parquet")] == ["one", "x"]
    (letter,) = dead_letters(tmp_path)
    assert letter["position"] == 16 and "Received also: n" in letter["error"]


def test_without_a_file_for_them_the_first_dead_letter_ends_the_run(predict, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": 7}\n')
    with pytest.raises(UserError) as caught:
        predict([tmp_path / "a.jsonl"], dead=None)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path}/a.jsonl, position 16 must be a row")
    assert message.endswith("Set dead_letter_file to go on without such rows.")
    assert not list(tmp_path.glob("out-*"))


def test_no_rows_and_empty_shards(predict, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    assert predict([tmp_path / "empty.jsonl"]) == (0, 0)
    assert [path.read_text() for path in sorted(tmp_path.glob("out-*"))] == ["", ""]
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n')
    assert predict([tmp_path / "a.jsonl"], "parquet", 3) == (1, 0)
    schemas = {str(pq.read_schema(path)) for path in tmp_path.glob("out-*.parquet")}
    assert len(schemas) == 1 and len(outputs(tmp_path, "parquet")) == 1


def finish(directory, parts, count, name="jsonl", staging="staging"):
    function = FinishOutput(count, Layout(name, "score", SCHEMA), str(directory / "out"))
    return function.process(str(directory / staging), parts)


def part_of(directory, shard, texts, name="jsonl"):
    file = PartFile(str(directory / "staging"), Layout(name, "score", SCHEMA))
    for position, text in enumerate(texts):
        assert file.add(CorpusEntry("a", position, {"text": text}), 0.5) == []
    assert file.close() == []
    return OutputPart(shard, file.path, file.rows)


def test_a_bundle_that_is_retried_writes_no_row_twice(tmp_path):
    (tmp_path / "staging").mkdir()
    part_of(tmp_path, 0, ["a", "b"])  # of the attempt that failed: no one hears of it
    parts = [part_of(tmp_path, 1, ["c"]), part_of(tmp_path, 0, ["a", "b"])]
    finish(tmp_path, parts, 2)
    assert [row["text"] for row in outputs(tmp_path)] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_moving_the_files_may_be_repeated(tmp_path, monkeypatch, name):
    (tmp_path / "staging").mkdir()
    parts = [part_of(tmp_path, 0, ["a"], name), part_of(tmp_path, 2, ["b"], name)]
    real = prediction.rename
    moved = []

    def rename(source, target):
        if moved:  # after the first file
            raise OSError("the worker is lost")
        moved.append(target)
        real(source, target)

    monkeypatch.setattr(prediction, "rename", rename)
    with pytest.raises(OSError, match="is lost"):
        finish(tmp_path, parts, 3, name)
    monkeypatch.setattr(prediction, "rename", real)
    for _ in range(2):
        assert len(finish(tmp_path, parts, 3, name)) == 3
        assert [row["text"] for row in outputs(tmp_path, name)] == ["a", "b"]
    assert prediction.counts_of(str(tmp_path / "staging")) == (2, 0)


def test_remote_files_leave_nothing_behind(predict, tmp_path, monkeypatch):
    monkeypatch.setattr(remote_files, "FOLDER", str(tmp_path / "bucket"))
    write(tmp_path / "corpus.jsonl")
    counts = predict([tmp_path / "corpus.jsonl"], prefix="test://results/out")
    assert counts == (len(TEXTS), 0)
    left = sorted(path.name for path in (tmp_path / "bucket").rglob("*") if path.is_file())
    assert left == ["out-00000-of-00002.jsonl", "out-00001-of-00002.jsonl"]


def test_the_files_of_an_earlier_run_are_replaced(tmp_path):
    (tmp_path / "staging").mkdir()
    for number in range(3):
        (tmp_path / f"out-{number:05d}-of-00003.jsonl").write_text("old\n")
    (tmp_path / "out-other.jsonl").write_text("kept")
    (tmp_path / "out-more-00000-of-00001.jsonl").write_text("kept")
    finish(tmp_path, [part_of(tmp_path, 0, ["a"])], 1)
    names = sorted(path.name for path in tmp_path.glob("*.jsonl"))
    one = "out-00000-of-00001.jsonl"
    assert names == [one, "out-more-00000-of-00001.jsonl", "out-other.jsonl"]
    (tmp_path / "next").mkdir()
    finish(tmp_path, [part_of(tmp_path, 0, ["b"])], 1, staging="next")
    assert json.loads((tmp_path / one).read_text())["text"] == "b"


def test_parts_of_one_shard_are_files_of_their_own(tmp_path):
    """As of a runner that does not fuse reading and writing."""
    (tmp_path / "staging").mkdir()
    parts = [part_of(tmp_path, shard, [text]) for shard, text in ((1, "c"), (0, "a"), (0, "b"))]
    finish(tmp_path, parts, 2)
    rows = [row["text"] for row in outputs(tmp_path)]
    assert sorted(rows) == ["a", "b", "c"] and rows[2] == "c"
