"""Readers: every task's columns, and errors that name file and line."""

import bz2
import json
import logging

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.text_classification import TASKS, TextExample, table_task, xnli_task
from research.corpora.film_reviews import read_film_reviews, split_by_film

ROWS = {
    "simple": ("a film\tgood", TextExample("a film", None, "good")),
    "cola": ("gj04\t1\t\tThe cat sat.", TextExample("The cat sat.", None, "1")),
    "sst-2": ("fine work \t1", TextExample("fine work ", None, "1")),
    "mrpc": ("1\t702\t703\tHe left .\tHe went .", TextExample("He left .", "He went .", "1")),
    "qqp": ("7\t1\t2\tWhy ?\tHow ?\t0", TextExample("Why ?", "How ?", "0")),
    "sts-b": (
        "0\tmain-captions\tMSRvid\t2012test\t0001\tnone\tnone\tA plane.\tAn air plane.\t4.75",
        TextExample("A plane.", "An air plane.", 4.75),
    ),
    "qnli": (
        "0\tWho ?\tHe did.\tnot_entailment",
        TextExample("Who ?", "He did.", "not_entailment"),
    ),
    "rte": ("0\tIt is.\tIt was.\tentailment", TextExample("It is.", "It was.", "entailment")),
    "wnli": ("0\tI saw it.\tIt was seen.\t1", TextExample("I saw it.", "It was seen.", "1")),
    "mnli-mm": (
        "0\t1\t1n\tfiction\tb\tb\tp\tp\tA premise\tA hypothesis\tneutral\tneutral",
        TextExample("A premise", "A hypothesis", "neutral"),
    ),
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


TEST_ROWS = {
    "cola": ("0\tThe cat sat.", TextExample("The cat sat.", id="0")),
    "mrpc": ("3\t702\t703\tHe left .\tHe went .", TextExample("He left .", "He went .", id="3")),
    "qqp": ("7\tWhy ?\tHow ?", TextExample("Why ?", "How ?", id="7")),
    "sts-b": (
        "1\tmain\tMSR\t2012\t1\tnone\tnone\tA plane.\tOne.",
        TextExample("A plane.", "One.", id="1"),
    ),
    "qnli": ("0\tWho ?\tHe did.", TextExample("Who ?", "He did.", id="0")),
    "mnli-mm": ("9\t1\t1n\tg\tb\tb\tp\tp\tA\tB", TextExample("A", "B", id="9")),
    "ax": ("0\tThe cat sat.\tIt sat.", TextExample("The cat sat.", "It sat.", id="0")),
}


@pytest.mark.parametrize("name", TEST_ROWS)
def test_columns_of_test_files(tmp_path, name):
    row, expected = TEST_ROWS[name]
    (tmp_path / TASKS[name].test_file).write_text(f"header\n{row}\n")
    assert TASKS[name].read(tmp_path, "test") == [expected]


def test_xnli_takes_one_language_and_the_originals_names(tmp_path):
    (tmp_path / "multinli").mkdir()
    train = tmp_path / "multinli" / "multinli.train.zh.tsv"
    train.write_text("premise\thypo\tlabel\n我 饿 。\t我 饱 。\tcontradictory\n")
    task = xnli_task("zh")
    assert task.read(tmp_path, "train") == [TextExample("我 饿 。", "我 饱 。", "contradiction")]
    rows = [
        f"{language}\tneutral\tb\tb\tp\tp\t{language} one\ttwo\t1\t1\tg"
        for language in ("en", "zh")
    ]
    (tmp_path / "xnli.dev.tsv").write_text("language\tgold_label\n" + "\n".join(rows) + "\n")
    assert task.read(tmp_path, "dev") == [TextExample("zh one", "two", "neutral")]
    assert TASKS["xnli"] == task


def test_qqp_counts_broken_lines_and_empty_sides(tmp_path, caplog):
    lines = ["header", "7\t1\t2\tWhy ?\tHow ?\t0", "and so on ?", "8\t1\t2\tWhy ?\t\t1"]
    (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
    with caplog.at_level(logging.WARNING, "bert_tf"):
        assert len(TASKS["qqp"].read(tmp_path, "train")) == 2
    assert "1 skipped lines with too few columns (first: line 3)" in caplog.text
    assert "1 examples with an empty text (first: line 4)" in caplog.text


def test_a_test_file_has_one_example_per_line(tmp_path):
    (tmp_path / "test.tsv").write_text("\ngood film\n\n\nbad film\tneg\n\n")
    examples = TASKS["simple"].read(tmp_path, "test")
    assert [example.text_a for example in examples] == ["", "good film", "", "", "bad film", ""]
    (tmp_path / "train.tsv").write_text("good film\tpos\n\nbad film\tneg\n")
    with pytest.raises(DataError, match="line 2 must have at least 2 tab-separated columns"):
        TASKS["simple"].read(tmp_path, "train")


TABLES = {
    "train.tsv": "id\ttext\tlabel\nx\tgood film\tpos\ny\tbad film\tneg\n",
    "train.csv": 'id,text,label\nx,"good film",pos\ny,"bad film",neg\n',
    "train.jsonl": '{"id": "x", "text": "good film", "label": "pos"}\n\n'
    '{"id": "y", "text": "bad film", "label": "neg", "more": 1}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(tmp_path, name):
    (tmp_path / name).write_text(TABLES[name])
    examples = table_task(tmp_path, id_column="id").read(tmp_path, "train")
    assert examples == [
        TextExample("good film", None, "pos", "x"),
        TextExample("bad film", None, "neg", "y"),
    ]


def test_tables_of_several_labels_and_of_numbers(tmp_path):
    rows = [{"a": "x", "b": "y", "tags": ["new", "hot"]}, {"a": "z", "b": "w", "tags": []}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "dev.csv").write_text('a,b,tags\nx,y,"new,hot"\nz,w,\n')
    task = table_task(tmp_path, "a", "b", "tags", problem_type="multi_label_classification")
    expected = [TextExample("x", "y", ("new", "hot")), TextExample("z", "w", ())]
    assert task.read(tmp_path, "train") == task.read(tmp_path, "dev") == expected
    assert task.label_list(expected) == ("hot", "new")
    (tmp_path / "train.jsonl").write_text('{"text": "x", "label": 2}')
    numbers = table_task(tmp_path, problem_type="regression")
    assert numbers.read(tmp_path, "train") == [TextExample("x", None, 2.0)]


@pytest.mark.parametrize(
    "content,words",
    [
        ('{"text": "x", "label": "a"}\n{"text": "y"', "line 2 must be a JSON object"),
        ('{"text": "x"}', r"line 1 must have the columns \['label'\]"),
        ('{"text": 3, "label": "a"}', "line 1 must have a text. Received: 3"),
        ('{"text": "x", "label": "c"}', "line 1 must have a label of .* Received: 'c'"),
        ('{"text": "x", "label": "a", "id": 1}\n' * 2, "line 2 must have a unique id"),
        ("[1]", "must be a JSON object. Received: list"),
    ],
)
def test_bad_tables_name_the_line(tmp_path, content, words):
    (tmp_path / "train.jsonl").write_text(content)
    task = table_task(tmp_path, labels=("a", "b"), id_column="id" if '"id"' in content else None)
    with pytest.raises(DataError, match=words):
        task.read(tmp_path, "train")


def test_more_bad_tables(tmp_path):
    (tmp_path / "train.csv").write_text("text,label\nx,a,b\n")
    with pytest.raises(DataError, match="line 2 must have 2 fields"):
        table_task(tmp_path).read(tmp_path, "train")
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\ta\n")
    with pytest.raises(DataError, match="must have only one file"):
        table_task(tmp_path)
    (tmp_path / "train.tsv").unlink()
    with pytest.raises(DataError, match=r"must be a file that ends in one of .* path='.*dev'"):
        table_task(tmp_path).read(tmp_path, "dev")
    (tmp_path / "dev.tsv").write_text("h\n" + "\t".join("0123456789") + "high\n")
    with pytest.raises(DataError, match="must have a number as label. Received: '9high'"):
        TASKS["sts-b"].read(tmp_path, "dev")
    with pytest.raises(DataError, match="split='train'"):
        TASKS["ax"].read(tmp_path, "train")


def test_empty_cells_of_a_table(tmp_path, caplog):
    (tmp_path / "train.csv").write_text("text,label\nbad,bad\n ,good\n,bad\nfine,\n")
    with caplog.at_level(logging.WARNING, "bert_tf"):
        examples = table_task(tmp_path).read(tmp_path, "train")
    assert "train.csv: 2 examples with an empty text (first: line 3)" in caplog.text
    assert [example.label for example in examples] == ["bad", "good", "bad", None]


def test_test_files_need_no_labels(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tfine work\n")
    assert TASKS["sst-2"].read(tmp_path, "test") == [TextExample("fine work", id="0")]
    (tmp_path / "test.tsv").write_text("fine work\n")
    assert TASKS["simple"].read(tmp_path, "test") == [TextExample("fine work")]


@pytest.mark.parametrize(
    "content,words",
    [
        (b"a film\tgood\nno label\n", "line 2 must have at least 2"),
        (b"a film\tgood\nb\xff\tbad\n", "line 2 must be UTF-8. Received: byte 0xff"),
        (b"", "no examples"),
        (b"", "no examples"),
        (b"\n\n", "line 1 must have at least 2 tab-separated columns"),
    ],
)
def test_bad_files_name_the_line(tmp_path, content, words):
    (tmp_path / "train.tsv").write_bytes(content)
    with pytest.raises(DataError, match=words):
        TASKS["simple"].read(tmp_path, "train")


def test_unknown_and_missing(tmp_path):
    with pytest.raises(DataError, match="must be a data file"):
        TASKS["simple"].read(tmp_path, "train")
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine\t2\n")
    with pytest.raises(DataError, match="line 2 must have a label of .* Received: '2'"):
        TASKS["sst-2"].read(tmp_path, "dev")
    with pytest.raises(DataError, match="at least 2 labels"):
        TASKS["simple"].label_list([TextExample("a", None, "x")])


def test_no_film_is_in_two_splits(materials):
    reviews = read_film_reviews(materials / "film_reviews" / "rotten_tomatoes_corpus_full.csv.bz2")
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
    with pytest.raises(DataError, match="must be a readable"):
        read_film_reviews(tmp_path / "x.bz2")
    (tmp_path / "x.bz2").write_bytes(bz2.compress(b"a,b\n1,2\n"))
    with pytest.raises(DataError, match="columns"):
        read_film_reviews(tmp_path / "x.bz2")
