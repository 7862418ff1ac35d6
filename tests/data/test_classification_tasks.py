"""Readers: every task's columns, and errors that name file and line."""

import bz2

import pytest

from bert_tf.data import TASKS, TextExample
from bert_tf.data.film_reviews import read_film_reviews, split_by_film
from bert_tf.errors import DataError

ROWS = {
    "simple": ("a film\tgood", TextExample("a film", None, "good")),
    "cola": ("gj04\t1\t\tThe cat sat.", TextExample("The cat sat.", None, "1")),
    "sst-2": ("fine work \t1", TextExample("fine work ", None, "1")),
    "mrpc": ("1\t702\t703\tHe left .\tHe went .", TextExample("He left .", "He went .", "1")),
    "mnli": (
        "0\t1\t1n\tfiction\tb\tb\tp\tp\tA premise\tA hypothesis\tneutral\tneutral",
        TextExample("A premise", "A hypothesis", "neutral"),
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_columns(tmp_path, name):
    row, expected = ROWS[name]
    task = TASKS[name]
    header = "header\n" if task.train.header else ""
    (tmp_path / "train.tsv").write_bytes(f"{header}{row}\r\n".encode())
    assert task.read(tmp_path, "train") == [expected]


def test_mnli_dev_takes_the_gold_label(tmp_path):
    fields = ["0", "1", "1", "g", "b", "b", "p", "p", "A", "B", *"neutral " * 0, *["x"] * 5]
    (tmp_path / "dev_matched.tsv").write_text("h\n" + "\t".join([*fields, "entailment"]) + "\n")
    assert TASKS["mnli"].read(tmp_path, "dev") == [TextExample("A", "B", "entailment")]


def test_test_files_need_no_labels(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tfine work\n")
    assert TASKS["sst-2"].read(tmp_path, "test") == [TextExample("fine work")]
    (tmp_path / "test.tsv").write_text("fine work\n")
    assert TASKS["simple"].read(tmp_path, "test") == [TextExample("fine work")]


@pytest.mark.parametrize(
    "content,words",
    [
        (b"a film\tgood\nno label\n", "line 2: expected at least 2"),
        (b"a film\tgood\nb\xff\tbad\n", "line 2: expected UTF-8, received byte 0xff"),
        (b"", "no examples"),
        (b"\n\n", "no examples"),
    ],
)
def test_bad_files_name_the_line(tmp_path, content, words):
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        TASKS["simple"].read(tmp_path, "train")


def test_unknown_and_missing(tmp_path):
    with pytest.raises(DataError, match="Expected a data file"):
        TASKS["simple"].read(tmp_path, "train")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine\t2\n")
    with pytest.raises(DataError, match="line 2: unknown label '2'"):
        TASKS["sst-2"].read(tmp_path, "dev")
    with pytest.raises(DataError, match="At least two labels"):
        TASKS["simple"].label_list([TextExample("a", None, "x")])


def test_no_film_is_in_two_splits(materials):
    reviews = read_film_reviews(
        materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2"
    )
    film_of = {text: film for text, _, film in reviews}
    splits = split_by_film(reviews)
    films = {split: {film_of[text] for text, _ in rows} for split, rows in splits.items()}
    assert sum(map(len, splits.values())) == len(reviews) > 12000
    assert not (films["train"] & films["dev"] | films["train"] & films["test"])
    assert not films["dev"] & films["test"]
    assert 0.7 < len(splits["train"]) / len(reviews) < 0.9
    assert splits == split_by_film(reviews)


def test_reviews_that_are_no_corpus(tmp_path):
    (tmp_path / "x.bz2").write_bytes(b"not bzip2")
    with pytest.raises(DataError, match="not a readable"):
        read_film_reviews(tmp_path / "x.bz2")
    (tmp_path / "x.bz2").write_bytes(bz2.compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match="columns"):
        read_film_reviews(tmp_path / "x.bz2")
