"""Pairs and triplets from files, and the errors that name file and line."""

import json

import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.sentence_embedding.files import (
    read_labelled_pairs,
    read_scored_pairs,
    read_triplets,
)


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_pairs(tmp_path):
    path = write(tmp_path / "sts.tsv", "sentence1\tsentence2\tscore", "a b\tc\t5.0", "d\te\t2.5")
    assert read_labelled_pairs(path) == ((["a b", "d"], ["c", "e"]), ["5.0", "2.5"])
    assert read_scored_pairs(path, 5.0)[1] == [1.0, 0.5]
    with pytest.raises(DataError, match="example 1 must have a score"):
        read_scored_pairs(path)
    rows = [{"sentence1": "a", "sentence2": "b", "label": 0}]
    path = write(tmp_path / "nli.jsonl", *map(json.dumps, rows))
    assert read_labelled_pairs(path) == ((["a"], ["b"]), [0])


def test_triplets(tmp_path):
    path = write(tmp_path / "pairs.tsv", "anchor\tpositive", "a\tb", "c\td")
    assert read_triplets(path) == (["a", "c"], ["b", "d"])
    path = write(tmp_path / "three.tsv", "anchor\tpositive\tnegative", "a\tb\tc")
    assert read_triplets(path) == (["a"], ["b"], ["c"])
    numbered = [f"negative_{number}" for number in (10, 2, 1)]
    rows = [["anchor", "positive", *numbered, "negative", "id"], list("abefdc7")]
    path = write(tmp_path / "many.tsv", *map("\t".join, rows))
    assert read_triplets(path) == (["a"], ["b"], ["c"], ["d"], ["f"], ["e"])
    row = {"anchor": "a", "positive": "b", "negative": ["c", "d"], "negative_1": "e"}
    path = write(tmp_path / "lists.jsonl", json.dumps(row))
    assert read_triplets(path) == (["a"], ["b"], ["c"], ["d"], ["e"])


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("a.tsv", ["sentence1\tsentence2\tscore", "a\t\t1"], "line 2 must .* `sentence2`"),
        ("b.tsv", ["sentence1\tsentence2", "a\tb"], "line 2 must have a value"),
        ("c.tsv", ["first\tsecond\tlabel", "a\tb\t1"], "columns"),
        ("d.tsv", ["sentence1\tsentence2\tlabel"], "must have examples"),
    ],
)
def test_bad_pairs(tmp_path, name, lines, message):
    with pytest.raises(DataError, match=message):
        read_labelled_pairs(write(tmp_path / name, *lines))


def test_bad_triplets(tmp_path):
    rows = [{"anchor": "a", "positive": "b"}, {"anchor": "a", "positive": "b", "negative": "c"}]
    with pytest.raises(DataError, match="line 2 must have 0 negatives, as the rows before"):
        read_triplets(write(tmp_path / "mixed.jsonl", *map(json.dumps, rows)))
    rows = [rows[1] | {"negative": texts} for texts in (["c", "d"], ["c"])]
    with pytest.raises(DataError, match="line 2 must have 2 negatives"):
        read_triplets(write(tmp_path / "lists.jsonl", *map(json.dumps, rows)))
    rows[1]["negative"].append(" ")
    with pytest.raises(DataError, match=r"line 2 must have a text in `negative\[1\]`"):
        read_triplets(write(tmp_path / "lists.jsonl", *map(json.dumps, rows)))
    with pytest.raises(DataError, match="must have examples"):
        read_triplets(write(tmp_path / "empty.tsv", "anchor\tpositive"))
