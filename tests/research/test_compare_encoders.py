"""The comparison of encoders: its runs, tables and word senses."""

import json
import os
import pathlib

import numpy as np
import pytest
from scipy import stats

from bert_tf.errors import UserError
from research.comparison import data_sets, encoders, fine_tuning_runs, runs
from research.comparison.tables import interval, markdown
from research.comparison.word_senses import Sentence, read_sentences, separation
from tests.conftest import MATERIALS, REPOSITORY
from tests.tools.running import run

PROGRAM = """
import os, sys
print("reads", sys.argv[1:])
open(sys.argv[1].removeprefix("--output_file="), "a").write("x")
sys.exit("it fails" if "--fails" in sys.argv else None)
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program that adds a letter to its output file."""
    monkeypatch.setattr(runs, "_CHECKOUT", tmp_path)
    (tmp_path / "write.py").write_text(PROGRAM)
    return tmp_path / "out" / "letters"


def test_a_finished_run_is_not_run_again(program):
    for flags in ({"seed": 1}, {"seed": 1}, {"seed": 2}):
        one = runs.Run("write", {"output_file": str(program), **flags})
        one.perform()
    assert program.read_text() == "xx"
    record = one.record()
    assert record["arguments"] == ["-m", "write", f"--output_file={program}", "--seed=2"]
    assert 0 < record["core_minutes"] < 1


def test_an_interrupted_training_begins_again(program):
    checkpoint = program.parent / "checkpoints" / "ckpt-3"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_text("")
    runs.Run("write", {"output_file": str(program)}).perform()
    assert not checkpoint.exists()


def test_a_failed_run_shows_its_output_and_has_no_record(program):
    failing = runs.Run("write", {"output_file": str(program), "fails": True})
    with pytest.raises(UserError, match=r"(?s)-m write .*must succeed.*status 1\b.*it fails"):
        failing.perform()
    assert failing.record() is None


def test_the_first_failure_ends_what_has_not_begun(program):
    others = [runs.Run("write", {"output_file": f"{program}{i}"}) for i in range(20)]
    failing = runs.Run("write", {"output_file": str(program), "fails": True})
    with pytest.raises(UserError):
        runs.perform_all([failing, *others], 1, lambda: None)
    assert sum(os.path.exists(one.flags["output_file"]) for one in others) < 20


def test_interval_is_that_of_students_t():
    scores = [0.81, 0.84, 0.80]
    mean, half = interval(scores)
    low, high = stats.t.interval(0.95, 2, np.mean(scores), stats.sem(scores))
    np.testing.assert_allclose([mean - half, mean + half], [low, high], rtol=1e-4)


def test_table():
    lines = markdown(["F1"], [("one", [[0.5]]), ("many", [[0.5, 0.5, 0.5]])])
    assert lines == ["| | F1 |", "|---|---:|", "| one | 0.500 |", "| many | 0.500 ± 0.000 |"]


def distinct_runs():
    """A run per program and set of flags, of all tables."""
    found = {}
    for language in (data_sets.ENGLISH, data_sets.CHINESE):
        for encoder in encoders.ENCODERS:
            found[encoder.name] = encoder.run(language, 1.0, MATERIALS, "work")
    for table, variants in fine_tuning_runs.TABLES.items():
        for variant in variants():
            for data in fine_tuning_runs.data_sets_of(table):
                for seed in (fine_tuning_runs.SEARCH_SEED, 1):
                    one = fine_tuning_runs.FineTuning(variant, data, 5.0, 1e-3, seed).run("work")
                    found[(one.program, *one.flags)] = one
    for data in data_sets.DATA_SETS:
        one = fine_tuning_runs.baseline_run(data, "work")
        found[(one.program, *one.flags)] = one
    return list(found.values())


@pytest.mark.parametrize("one", distinct_runs(), ids=lambda one: one.program)
def test_the_programs_have_the_flags_of_the_runs(one):
    result = run(one.program, *one.arguments()[2:], "--only_check_args")
    assert result.returncode == 0, result.stderr


@pytest.mark.full
def test_no_text_of_dev_or_test_is_in_the_text_of_the_pretraining(prepared):
    for data in data_sets.DATA_SETS[:3]:
        directory = pathlib.Path(data_sets.directory_of(data, prepared))
        text = pathlib.Path(data_sets.text_file(data.language, prepared)).read_text("utf-8")
        known = set(text.splitlines())
        for split, expected in (("train", True), ("test", False)):
            lines = (directory / f"{split}.tsv").read_text("utf-8").splitlines()
            found = [line.rpartition("\t")[0] in known for line in lines]
            assert np.mean(found) > 0.99 if expected else np.mean(found) < 0.01


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A --work_dir with the data, made of the real texts."""
    work_dir = tmp_path_factory.mktemp("comparison")
    for one in data_sets.preparing_runs(MATERIALS, str(work_dir)):
        os.makedirs(one.directory, exist_ok=True)
        result = run(one.program, *one.arguments()[2:])
        assert result.returncode == 0, result.stderr
    data_sets.write_texts(str(work_dir))
    return str(work_dir)


def test_sentences_of_the_senses(prepared):
    sentences = read_sentences(prepared)
    labels = json.loads((REPOSITORY / "research" / "comparison" / "word_senses.json").read_text())
    for word, senses in labels.items():
        assert {one.sense for one in sentences[word]} == set(senses)
        assert all(word in one.text.lower() for one in sentences[word])


def test_separation_of_senses():
    sentences = [Sentence("", sense, corpus) for sense in "ab" for corpus in "xxyy"]
    equal = np.ones([8, 4])
    apart = np.repeat(np.eye(4)[:2], 4, axis=0)
    of_corpus = np.tile(np.repeat(np.eye(4)[:2], 2, axis=0), [2, 1])
    assert separation(equal, sentences) == 0.5
    assert separation(apart, sentences) == 1.0
    assert separation(apart, sentences, within=True) == 1.0
    assert separation(of_corpus, sentences) < 0.5
    assert separation(of_corpus, sentences, within=True) == 0.5


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--encoders=lstm"], "--encoders must be among skip_gram, cbow"),
        (["--data_sets=imdb"], "--data_sets must be among film_reviews"),
        (["--table=layers", "--encoders=elmo"], "--encoders must be among bert for --table=layers"),
        (["--table=pooling", "--data_sets=chinese_news"], "--data_sets must be among"),
    ],
)
def test_wrong_flags(tmp_path, flags, message):
    flags = ("--table=encoders", f"--work_dir={tmp_path}/new", *flags)
    result = run("research.compare_encoders", *flags)
    assert result.returncode == 1 and message in result.stderr
    assert not os.path.exists(tmp_path / "new")


def test_a_directory_has_one_comparison(tmp_path):
    (tmp_path / "settings.json").write_text(json.dumps({"token_share": 0.5}))
    result = run("research.compare_encoders", "--table=encoders", f"--work_dir={tmp_path}")
    assert result.returncode == 1 and "--work_dir must be new" in result.stderr
    assert os.listdir(tmp_path) == ["settings.json"]


@pytest.mark.full
def test_from_texts_to_tables(tmp_path):
    flags = [
        "--table=encoders",
        f"--work_dir={tmp_path}",
        "--encoders=bert",
        "--data_sets=questions",
        "--token_share=0.003",
        "--num_train_epochs=0.2",
        "--num_seeds=2",
    ]
    result = run("research.compare_encoders", *flags, timeout=600)
    assert result.returncode == 0, result.stderr
    lines = (tmp_path / "encoders.md").read_text().splitlines()
    assert result.stdout.splitlines()[-len(lines) :] == lines
    names = [line.split(" | ")[0].strip("| ") for line in lines[2:]]
    assert names == ["TF-IDF, for NER a CRF", "BERT's objective, frozen", "BERT's objective"]
    assert (tmp_path / "encoders.png").stat().st_size > 1000
    assert len((tmp_path / "encoders_pretraining.md").read_text().splitlines()) == 3
    again = run("research.compare_encoders", *flags)  # all is there: within seconds
    assert again.returncode == 0 and again.stdout.splitlines()[-len(lines) :] == lines


@pytest.mark.full
def test_word_senses_of_real_encoders(prepared, tmp_path):
    """MiniLM replaces every encoder: its last layer separates senses better than its first."""
    for encoder in encoders.ENCODERS:
        directory = pathlib.Path(encoder.checkpoint(data_sets.ENGLISH, prepared))
        directory.parent.mkdir(parents=True)
        directory.symlink_to(MATERIALS / "minilm")
    result = run("research.compare_word_senses", f"--work_dir={prepared}", timeout=600)
    assert result.returncode == 0, result.stderr
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith("| Tr")]
    first, last = float(rows[0][2]), float(rows[-1][2])
    assert len(rows) == 7 and first < last and last > 0.7
    assert os.path.exists(f"{prepared}/word_senses.png")
