"""Data sets of BEIR and grades of TREC, and the errors that name file and line."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.sentence_embedding.files import (
    find_data_sets,
    read_corpus,
    read_qrels,
    read_queries,
)
from tests.example_files import write_retrieval_data

QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\n"


def write(path, *rows):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def test_documents_and_queries(tmp_path):
    path = write(
        tmp_path / "corpus.jsonl",
        {"_id": "d1", "title": "A title", "text": "A text.", "metadata": {}},
        {"_id": "d2", "title": "", "text": "No title."},
        {"_id": "d3", "text": ""},
        {"_id": "d4", "title": None, "text": "b"},
    )
    expected = [("d1", "A title A text."), ("d2", "No title."), ("d3", ""), ("d4", "b")]
    assert list(read_corpus(path)) == expected
    path = write(
        tmp_path / "queries.jsonl", {"_id": "q2", "text": "b?"}, {"_id": "q1", "text": "a"}
    )
    assert list(read_queries(path).items()) == [("q2", "b?"), ("q1", "a")]


def test_the_corpus_is_read_line_by_line(tmp_path):
    path = write(tmp_path / "corpus.jsonl", {"_id": "d1", "text": "a"}, "damaged")
    documents = read_corpus(path)
    assert next(documents) == ("d1", "a")
    with pytest.raises(DataError, match="corpus.jsonl, line 2 must be a JSON object"):
        next(documents)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "a"}], r"line 1 must have a string in `_id`.*\['text'\]"),
        ([{"_id": 1, "text": "a"}], "line 1 must have a string in `_id`. Received: 1"),
        ([{"_id": "", "text": "a"}], "an `_id` that no other line has"),
        ([{"_id": "a", "text": "b"}, {"_id": "a", "text": "b"}], "line 2 must have an `_id` that"),
        ([{"_id": "a"}], "line 1 must have a string in `text`"),
        ([{"_id": "a", "text": " "}], "line 1 must have a text"),
        ([], "must have queries"),
    ],
)
def test_bad_queries(tmp_path, rows, message):
    with pytest.raises(DataError, match=message):
        read_queries(write(tmp_path / "queries.jsonl", *rows))


def test_grades(tmp_path):
    expected = {"q1": {"d1": 2, "d2": 0}, "q2": {"d\u00a01": 1}}
    rows = ["q1\td1\t2", "q1\td2\t0", "q2\td\u00a01\t1", "q1\td1\t2"]
    assert read_qrels(write(tmp_path / "a.tsv", QRELS.splitlines()[0], *rows)) == expected
    rows = ["q1 0 d1 2", "q1\t0\td2   0 ", "", "q2 Q0 d\u00a01 1"]
    assert read_qrels(write(tmp_path / "qrels.txt", *rows)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (QRELS + "q1\td2\n", "line 3 must have query-id, corpus-id, score. Received: 2 fields"),
        (QRELS + "q1\td2\t0.5\n", "line 3 must have a whole number as its grade. Received: '0.5'"),
        (QRELS + "q1\td1\t2\n", "line 3 must have the same grade .* Received: 2 and 1"),
        ("q1\td1\t1\n", "line 1 must have query, iteration, .* BEIR's files begin with"),
        (QRELS.splitlines()[0], "must have grades"),
    ],
)
def test_bad_grades(tmp_path, text, message):
    (tmp_path / "qrels").write_text(text)
    with pytest.raises(DataError, match=message):
        read_qrels(tmp_path / "qrels")


def test_one_data_set_or_several(tmp_path):
    for name in ("b", "a[1]"):
        write_retrieval_data(tmp_path / name, [("d1", "a")], [("q1", "b")], QRELS)
    (tmp_path / "other").mkdir()
    found = find_data_sets(tmp_path)
    assert [data_set.name for data_set in found] == ["a[1]", "b"]
    assert find_data_sets(f"{tmp_path}/b/") == found[1:]
    assert read_qrels(found[0].qrels) == {"q1": {"d1": 1}}
    with pytest.raises(DataError, match=r"dev.tsv must be a file .* only \['test.tsv'\]"):
        find_data_sets(tmp_path, "dev")
    with pytest.raises(DataError, match="must have a corpus.jsonl, or folders"):
        find_data_sets(tmp_path / "other")
