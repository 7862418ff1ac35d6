"""What a format cannot hold is returned with its reason, and the other rows are written."""

import decimal
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert_tf.beam.readers import read_range
from bert_tf.beam.shards import CorpusEntry, plan_shards
from bert_tf.beam.writers import OUTPUT_SUFFIXES, WRITERS, Layout, schema_of
from bert_tf.errors import DataError

VECTOR = np.array([0.1, -2.0], np.float32)


def row(position=0, **columns):
    return CorpusEntry("a.jsonl", position, columns)


def written(path, layout, rows):
    """What the reader finds in a file that the writer wrote, and what the writer refused."""
    writer = WRITERS[layout.format](open(path, "wb"), layout)
    failures = writer.write(rows)
    writer.close()
    ((part,),) = (shard.ranges for shard in plan_shards([str(path)]))
    return [found.columns for found in read_range(part)], failures


@pytest.mark.parametrize("name", ["jsonl", "csv", "parquet", "tfrecord"])
def test_columns_and_vectors_come_back(name, tmp_path):
    rows = [(row(text='a "b",\nc', n=3, x=0.5), VECTOR), (row(text="", n=4, x=1.5), -VECTOR)]
    layout = Layout(name, "vector", schema_of(one for one, _ in rows))
    found, failures = written(tmp_path / f"a{OUTPUT_SUFFIXES[name]}", layout, rows)
    assert not failures and [one["text"] for one in found] == ['a "b",\nc', ""]
    for one, (given, vector) in zip(found, rows, strict=True):
        values = {key: one[key] for key in ("n", "x", "vector")}
        if name == "csv":
            values = {key: json.loads(value) for key, value in values.items()}
        assert {key: values[key] for key in "nx"} == {key: given.columns[key] for key in "nx"}
        np.testing.assert_array_equal(np.array(values["vector"], np.float32), vector)
    if name == "parquet":
        kind = pq.read_schema(tmp_path / "a.parquet").field("vector").type
        assert kind == pa.list_(pa.float32(), 2)


def test_rows_that_do_not_fit_are_returned(tmp_path):
    good, other, kind = row(0, text="a", n=1), row(1, text="b", m=1), row(2, text="c", n="two")
    rows = [(good, 0.5), (other, 0.5), (kind, 0.25), (row(3, text="d", n=2), 0.25)]
    layout = Layout("parquet", "score", schema_of([good]))
    found, failures = written(tmp_path / "a.parquet", layout, rows)
    assert [one["text"] for one in found] == ["a", "d"]
    assert [failed.position for failed, _ in failures] == [1, 2]
    assert "Received also: m" in failures[0][1]
    lone = [(row(text="a\ud800"), 0.5), (row(text="b"), 0.5)]
    for name in ("jsonl", "csv", "text", "tfrecord"):
        layout = Layout(name, "score", pa.schema([("text", pa.string())]))
        _, failures = written(tmp_path / f"b{OUTPUT_SUFFIXES[name]}", layout, lone)
        assert len(failures) == 1, name


def test_values_that_json_does_not_have():
    file = io.BytesIO()
    values = {"n": decimal.Decimal("1.5"), "b": b"\xff"}
    assert not WRITERS["jsonl"](file, Layout("jsonl", "score")).write([(row(**values), 1.0)])
    assert json.loads(file.getvalue()) == {"n": "1.5", "b": "/w==", "score": 1.0}


def test_a_text_of_several_lines_is_not_a_line():
    file = io.BytesIO()
    writer = WRITERS["text"](file, Layout("text", "score"))
    failures = writer.write([(row(text="a\nb"), 0.5), (row(text="c"), 0.5)])
    assert len(failures) == 1 and file.getvalue() == b"0.5\tc\n"


def test_columns_of_several_types_have_no_schema():
    assert schema_of([row(a=None, b=1), row(b=2)]) == pa.schema(
        [("a", pa.string()), ("b", pa.int64())]
    )
    with pytest.raises(DataError, match="'a' must have values of one type"):
        schema_of([row(a=1), row(a="one")])
