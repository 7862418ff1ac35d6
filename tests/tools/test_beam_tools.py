"""The Beam programs as a user runs them, in one process, in several, and with a killed one."""

import json
import os
import pathlib
import signal
import time

import pytest

pytest.importorskip("apache_beam", reason="needs apache-beam")

from tests.beam.corpora import VOCABULARY, as_json, as_text, as_wiki, random_documents
from tests.beam.workers import workers_of
from tests.tools.running import run, start

DATA = "beam_create_pretraining_data"


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCABULARY))
    for name, encode in (("text", as_text), ("wiki", as_wiki), ("json", as_json)):
        (tmp_path / name / "AA").mkdir(parents=True)
        documents = random_documents(8)
        (tmp_path / name / "AA" / "0").write_text(encode(documents[:4]))
        (tmp_path / name / "AA" / "1").write_text(encode(documents[4:]))
    return tmp_path


def data_flags(corpus, output):
    return [
        f"--vocab_file={corpus / 'vocab.txt'}",
        f"--output_file={output}-0,{output}-1",
        "--dupe_factor=2",
        "--max_seq_length=32",
        "--max_predictions_per_seq=5",
    ]


def contents(output):
    return [pathlib.Path(f"{output}-{n}").read_bytes() for n in range(2)]


def succeed(*arguments, **options):
    result = run(*arguments, **options)
    assert result.returncode == 0, result.stderr
    return result


def test_pretraining_data(corpus):
    local, here = corpus / "local", corpus / "here"
    text = f"--input_file={corpus / 'text' / 'AA' / '?'}"
    expected = succeed("create_pretraining_data", text, *data_flags(corpus, local))
    with open(corpus / "wiki" / "AA" / "1", "ab") as file:
        file.write(b"\xff\n")
    letters = corpus / "letters.jsonl"
    result = succeed(
        DATA,
        f"--input_file={corpus / 'wiki'}",
        "--input_format=wiki",
        f"--dead_letter_file={letters}",
        "--direct_num_workers=1",
        *data_flags(corpus, here),
    )
    assert contents(here) == contents(local)
    shown = [line for line in result.stdout.splitlines() if not line.startswith("dead letters")]
    # The last two lines name the files.
    assert shown[:-2] == expected.stdout.splitlines()[:-2]
    (letter,) = map(json.loads, letters.read_text().splitlines())
    assert letter["source"].endswith("wiki/AA/1") and letter["element"] == "\\xff\n"
    assert f"dead letters       1 in {letters}" in result.stdout
    assert not list(corpus.glob(".beam-*"))


def test_vocabulary(corpus):
    local, here = corpus / "local.txt", corpus / "here.txt"
    options = ["--vocab_size=60", "--num_unused=2", "--algorithm=bpe"]
    text = f"--input_file={corpus / 'text' / 'AA' / '?'}"
    succeed("build_vocab", text, f"--output_file={local}", *options)
    flags = [f"--input_file={corpus / 'json'}", "--input_format=json", "--direct_num_workers=1"]
    result = run("beam_build_vocab", *flags, f"--output_file={here}", "--vocab_size=3")
    assert "`vocabulary_size` must be at least" in result.stderr
    assert len(list(corpus.glob(".beam-*"))) == 1, "the counts are kept"
    shown = succeed("beam_build_vocab", *flags, f"--output_file={here}", *options).stdout
    assert f"bert-tf {DATA} --vocab_file={here}" in shown.splitlines()[-1]
    assert "--input_format=json" in shown.splitlines()[-1]
    assert here.read_bytes() == local.read_bytes()
    assert not list(corpus.glob(".beam-*"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--beam_options=--no_such=1"], "unknown options --no_such"),
        (["--beam_options=--parallelism=x"], "invalid int value: 'x'"),
        (["--beam_options=x"], "must be of the form --name=value. Received: 'x'"),
        (["--beam_options='"], "No closing quotation"),
        (["--beam_options=--runner=x"], "--runner must be a flag of its own"),
        (["--runner=FlinkRunner", "--direct_num_workers=2"], "must be used with --runner=Direct"),
        (["--runner=no.such.Runner"], "no.such must be installed"),
        (["--setup_file=/nowhere"], "--setup_file must be a file. Received: /nowhere"),
        (["--input_file=/nowhere"], "--input_file must match at least one file"),
        (["--input_file=gs://b/a"], "--input_file must be readable. Received: 'gs://b/a'"),
        (["--dead_letter_file=gs://b/a"], "--dead_letter_file must be a local path"),
        (["--dead_letter_file=/"], "--dead_letter_file must be a file of its own"),
        (["--output_file=a,a"], "--output_file must name every file once"),
    ],
)
def test_wrong_flags(corpus, flags, message):
    text = f"--input_file={corpus / 'text'}"
    result = run(DATA, text, *data_flags(corpus, corpus / "out"), *flags, directory=corpus)
    assert result.returncode == 1 and message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(os.listdir(corpus)) == ["json", "text", "vocab.txt", "wiki"]


def test_a_name_that_is_not_utf8(corpus):
    """It can be read, and is escaped in the dead letters."""
    name = os.fsdecode(b"\xff")
    (corpus / "text" / name).write_bytes(b"a b\n\xff\n")
    flags = [f"--input_file={corpus / 'text'}", "--direct_num_workers=1"]
    letters = corpus / "letters.jsonl"
    succeed(DATA, *flags, f"--dead_letter_file={letters}", *data_flags(corpus, corpus / "out"))
    (letter,) = map(json.loads, letters.read_text("utf-8").splitlines())
    assert letter["source"] == str(corpus / "text" / name) and letter["position"] == 4


def test_a_damaged_file_is_refused(corpus):
    (corpus / "text" / "AA" / "0").write_bytes(b"a b\n\xff\n")
    flags = [f"--input_file={corpus / 'text'}", "--direct_num_workers=1"]
    result = run(DATA, *flags, *data_flags(corpus, corpus / "out"))
    assert result.returncode == 1
    assert "AA/0, line at byte 4 must be UTF-8" in result.stderr.splitlines()[-1]
    assert sorted(os.listdir(corpus)) == ["json", "text", "vocab.txt", "wiki"]


@pytest.mark.full
@pytest.mark.parametrize("killed", ["worker", "program"])
def test_a_kill_loses_and_repeats_nothing(corpus, killed):
    large = corpus / "large.txt"
    large.write_text(as_text(random_documents(5000)))  # 2 chunks
    flags = [f"--input_file={large}", "--chunk_megabytes=1"]
    succeed("create_pretraining_data", *flags, *data_flags(corpus, corpus / "local"), timeout=600)
    there = [DATA, *flags, "--direct_num_workers=2", *data_flags(corpus, corpus / "there")]
    process = start(*there, output=corpus / "log")
    before = _wait_for_runs(corpus, process)
    os.kill(workers_of(process.pid)[0] if killed == "worker" else process.pid, signal.SIGKILL)
    if killed == "program":
        process.wait(600)
        succeed(*there, timeout=600)
    else:
        assert process.wait(600) == 0, (corpus / "log").read_text()
        assert "a worker process was lost" in (corpus / "log").read_text()
    assert contents(corpus / "there") == contents(corpus / "local")
    assert before and not list(corpus.glob(".beam-*"))


def _wait_for_runs(corpus, process):
    """Waits until the passes over a chunk begin to end, and returns how many have."""
    while process.is_alive():
        done = list(corpus.glob(".beam-*/run-*.result"))
        if done:
            return len(done)
        time.sleep(0.05)
    pytest.fail((corpus / "log").read_text())
