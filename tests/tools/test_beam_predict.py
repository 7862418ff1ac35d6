"""tools/beam_predict.py: a corpus from files to files, and what it refuses before any work."""

import ast
import json
import os
import signal
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_tf
from bert_tf import tasks
from bert_tf.beam.shards import CORPUS_FORMATS
from bert_tf.beam.writers import WRITERS
from research.corpora.film_reviews import read_film_reviews
from tests.beam.test_model_handler import TASK_OF_METHOD
from tests.beam.workers import workers_of
from tests.conformance.task import PAIRS, TEXTS, make
from tests.conformance.tasks import TASKS
from tests.conftest import REPOSITORY
from tests.tools.running import run, start

QUIET = ("--direct_num_workers=1", "--num_shards=2")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Questions with their contexts, of which one is damaged, and a model that answers them."""
    directory = tmp_path_factory.mktemp("corpus")
    rows = [{"id": i, "q": q, "c": c} for i, (q, c) in enumerate(zip(TEXTS, PAIRS))]
    lines = [json.dumps(row) for row in rows]
    (directory / "questions.jsonl").write_text("\n".join([*lines[:3], '{"q": "a"', *lines[3:]]))
    model = make(TASKS["question answering"])
    model.save_pretrained(directory / "model")
    return directory, model


def flags_of(directory, output, *more):
    return (
        f"--model_dir={directory}/model",
        f"--input_file={directory}/questions.jsonl",
        "--text_column=q",
        "--pair_column=c",
        f"--output_file={output}",
        *QUIET,
        *more,
    )


def test_answers_and_dead_letters(corpus, tmp_path):
    directory, model = corpus
    dead = f"--dead_letter_file={tmp_path}/dead.jsonl"
    result = run("beam_predict", *flags_of(directory, tmp_path / "new" / "out", dead))
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[0] == "read 7, predicted 6, dead letters 1"
    paths = sorted((tmp_path / "new").iterdir())
    assert [path.name for path in paths] == [f"out-0000{n}-of-00002.jsonl" for n in range(2)]
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert [(row["id"], row["q"], row["c"]) for row in rows] == [*zip(range(6), TEXTS, PAIRS)]
    for row, answer in zip(rows, model.answer(TEXTS, PAIRS)):
        assert row["answer"].keys() == answer._asdict().keys()
        assert row["answer"]["text"] == answer.text
        assert row["answer"]["score"] == pytest.approx(answer.score, abs=1e-5)
    (letter,) = (json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines())
    assert letter["source"] == f"{directory}/questions.jsonl" and letter["element"] == '{"q": "a"\n'
    assert (directory / "questions.jsonl").read_text()[letter["position"] :][:9] == '{"q": "a"'


def test_the_first_damaged_row_ends_the_run(corpus, tmp_path):
    result = run("beam_predict", *flags_of(corpus[0], tmp_path / "out"))
    assert result.returncode == 1 and not list(tmp_path.iterdir())
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert "questions.jsonl, position" in line and "must be a JSON object" in line


@pytest.mark.parametrize(
    "flags, message",
    [
        (("--method=encode",), "--pair_column must not be set with --method=encode"),
        (("--method=classify", "--model=question_answering"), "--method must be one that"),
        (("--text_column=question",), "must be columns of the input. Received: question, c;"),
        (("--answer_column=q",), "must be different"),
        (("--relevant_label=good", "--method=tag"), "--relevant_label must be used with"),
        (("--input_file=absent.jsonl",), "--input_file must match at least one file"),
        (("--model_dir=absent",), "absent"),
        (("--output_file=setup.py/out",), "must be a directory that can be created"),
    ],
)  # fmt: skip
def test_wrong_flags(flags, message, corpus, tmp_path):
    result = run("beam_predict", *flags_of(corpus[0], tmp_path / "out", *flags))
    assert result.returncode == 1 and message in result.stderr, result.stderr
    assert not list(tmp_path.iterdir())


def test_no_input_is_replaced(corpus, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    path = tmp_path / "real" / "out-00000-of-00001.jsonl"
    path.write_text('{"q": "a", "c": "b"}\n')
    given = (f"--input_file={path}",)
    flags = flags_of(corpus[0], tmp_path / "link" / "out", *given)
    result = run("beam_predict", *flags)
    assert "--output_file must not be the path of input files" in result.stderr, result.stderr
    for letters, message in ((path, "must not be an input file"), (tmp_path, "must be a file")):
        flags = flags_of(corpus[0], tmp_path / "new", *given, f"--dead_letter_file={letters}")
        result = run("beam_predict", *flags)
        assert f"--dead_letter_file {message}" in result.stderr, result.stderr
    assert path.read_text() == '{"q": "a", "c": "b"}\n'


def test_the_formats_are_those_of_the_readers_and_writers():
    """The program lists them without importing Beam."""
    source = (REPOSITORY / "tools" / "beam_predict.py").read_text(encoding="utf-8")
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.startswith("_")
    }
    assert values["_INPUT_FORMATS"] == CORPUS_FORMATS and set(values["_OUTPUT_FORMATS"]) == set(
        WRITERS
    )
    assert TASK_OF_METHOD.keys() == tasks.answers().keys()


@pytest.mark.full
@pytest.mark.parametrize(("workers", "kills"), [(1, False), (2, False), (2, True)])
def test_real_sentences_by_a_real_model(workers, kills, minilm, materials, tmp_path):
    """The vectors of the local `encode`, in one process and in two, also if one is killed."""
    path = materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    texts = [text for text, *_ in read_film_reviews(path)][:300]
    rows = [json.dumps({"id": number, "text": text}) for number, text in enumerate(texts)]
    (tmp_path / "reviews.jsonl").write_text("\n".join([*rows[:100], "{", *rows[100:]]))
    process = start(
        "beam_predict",
        f"--model_dir={minilm}",
        "--method=encode",
        f"--input_file={tmp_path}/*.jsonl",
        f"--output_file={tmp_path}/vectors",
        "--output_format=parquet",
        f"--dead_letter_file={tmp_path}/dead.jsonl",
        f"--direct_num_workers={workers}",
        "--num_shards=4",
        output=tmp_path / "log",
    )
    if kills:
        while not list(tmp_path.glob(".vectors-*/*")):  # what workers write
            assert process.is_alive(), process.text()
            time.sleep(0.05)
        os.kill(workers_of(process.pid)[0], signal.SIGKILL)
    assert process.wait(600) == 0, process.text()
    assert "read 301, predicted 300, dead letters 1" in process.text()
    assert ("a worker process was lost" in process.text()) == kills
    tables = [pq.read_table(path) for path in sorted(tmp_path.glob("*.parquet"))]
    assert len(tables) == 4 and all(len(table) > 50 for table in tables)
    found = [row for table in tables for row in table.to_pylist()]
    assert [row["id"] for row in found] == list(range(300))
    expected = bert_tf.BertSentenceEncoder.from_pretrained(minilm).encode(texts)
    np.testing.assert_allclose([row["answer"] for row in found], expected, atol=1e-5)
