"""Pairs and triplets from files, and the errors that name file and line."""

import json

import numpy as np
import pytest

from bert_tf.errors import DataError
from bert_tf.tasks.sentence_embedding.files import (
    read_labelled_pairs,
    read_scored_pairs,
    read_scored_triplets,
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


def test_scored_triplets(tmp_path):
    names = ["anchor", "positive", "negative_1", "negative_2", "scores"]
    path = write(tmp_path / "two.tsv", "\t".join(names), "a\tb\tc\td\t0.5 -1e1 0.25")
    texts, scores = read_scored_triplets(path)
    assert texts == (["a"], ["b"], ["c"], ["d"]) and scores.dtype == np.float32
    assert scores.tolist() == [[0.5, -10.0, 0.25]]
    # What `mine_hard_negatives` of sentence-transformers 6.2 writes as "n-tuple" with scores.
    row = {"anchor": "a", "positive": "b", "negative_1": "c", "scores": [0.9, 0.4]}
    rows = [row, row | {"scores": [1, 0]}]
    path = write(tmp_path / "peer.jsonl", *map(json.dumps, rows))
    expected = np.array([[0.9, 0.4], [1, 0]], np.float32)
    np.testing.assert_array_equal(read_scored_triplets(path)[1], expected)
    for margin, found in ((1.5, [[1.5]]), ("2", [[2.0]])):
        row = {"anchor": "a", "positive": "b", "negative": ["c"], "label": margin}
        path = write(tmp_path / "margin.jsonl", json.dumps(row))
        assert read_scored_triplets(path)[1].tolist() == found
    row = {"anchor": "a", "positive": "b", "negative": ["c", "d"]}
    for added, message in (
        ({}, "line 1 must have 2 or 3 numbers in the column `scores`"),
        ({"scores": [1.0, 2.0]}, "line 1 must have 3 numbers"),
        ({"scores": [1.0, 2.0, float("nan")]}, "line 1 must have 3 numbers"),
        ({"label": 1.0}, "line 1 must have 2 or 3 numbers"),
        ({"label": "x y"}, "line 1 must have 2 or 3 numbers"),
        ({"scores": {"a": 1}}, "line 1 must have 3 numbers"),
    ):
        path = write(tmp_path / "bad.jsonl", json.dumps(row | added))
        with pytest.raises(DataError, match=message):
            read_scored_triplets(path)
    rows = [row | {"label": numbers} for numbers in ([1, 2], [1, 2, 3])]
    with pytest.raises(DataError, match="line 2 must have 2 numbers"):
        read_scored_triplets(write(tmp_path / "other.jsonl", *map(json.dumps, rows)))


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
