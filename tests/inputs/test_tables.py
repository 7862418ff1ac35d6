"""Tables are read as they were written, and errors name the line."""

import json
import os

import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.inputs.tables.table_files import SUFFIXES, read_table
from bert_tf.inputs.tables.table_writer import open_table

ROWS = [{"id": "a", "text": 'said "no",\nand "yes"', "p": 0.25}, {"id": "ü", "text": "", "p": 1.0}]


@pytest.fixture(autouse=True)
def parquet():
    pytest.importorskip("pyarrow", reason="needs pyarrow")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_of_blocks(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    rows = ROWS if suffix != ".tsv" else [{**row, "text": "two words"} for row in ROWS]
    with open_table(path) as table:
        for row in rows:
            table.write([row])
        table.write([])
    assert os.listdir(tmp_path) == [path.name]
    found = [row for _, row in read_table(path)]
    assert [{**row, "p": float(row["p"])} for row in found] == rows
    lines = [line for line, _ in read_table(path)]
    assert lines == {".csv": [3, 4], ".tsv": [2, 3]}.get(suffix, [1, 2])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_error_leaves_the_old_table(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    path.write_text("old")
    with pytest.raises(RuntimeError), open_table(path) as table:
        table.write([{"text": "new"}])
        raise RuntimeError
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_without_rows(tmp_path, suffix):
    with open_table(tmp_path / f"table{suffix}"):
        pass
    assert list(read_table(tmp_path / f"table{suffix}")) == []


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_later_rows_have_the_columns_of_the_first(tmp_path, suffix):
    with pytest.raises(UserError, match="must have .*Write a .jsonl file"):
        with open_table(tmp_path / f"table{suffix}") as table:
            table.write([{"text": "a"}])
            table.write([{"text": "b", "other": "c"}])
    with open_table(tmp_path / f"table{suffix}") as table:
        table.write([{"text": "a", "other": "c"}, {"text": "b"}])
    assert [row["other"] or None for _, row in read_table(tmp_path / f"table{suffix}")] == [
        "c",
        None,
    ]


def test_what_a_format_cannot_hold(tmp_path):
    for field in ("a\tb", "a\nb"):
        with pytest.raises(UserError, match="Write a .csv file"):
            with open_table(tmp_path / "table.tsv") as table:
                table.write([{"text": field}])
    with pytest.raises(UserError, match="types of its first rows"):
        with open_table(tmp_path / "table.parquet") as table:
            table.write([{"stars": 3}])
            table.write([{"stars": "four"}])
    with pytest.raises(UserError, match="must end in one of"):
        with open_table(tmp_path / "table.xlsx"):
            pass
    assert os.listdir(tmp_path) == []


def test_nested_values(tmp_path):
    row = {"labels": ["good", "long"], "n": 3, "none": None}
    for suffix in (".jsonl", ".parquet", ".csv"):
        with open_table(tmp_path / f"table{suffix}") as table:
            table.write([row])
    assert [found for _, found in read_table(tmp_path / "table.jsonl")] == [row]
    assert [found for _, found in read_table(tmp_path / "table.parquet")] == [row]
    ((_, found),) = read_table(tmp_path / "table.csv")
    assert json.loads(found["labels"]) == row["labels"] and (found["n"], found["none"]) == ("3", "")


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_empty_lines_of_a_single_column_are_rows(tmp_path, suffix):
    path = tmp_path / f"table{suffix}"
    path.write_bytes(b"\ntext\n\none\r\n\r\n\ntwo\n\n")
    assert [row["text"] for _, row in read_table(path)] == ["", "one", "", "", "two", ""]


def test_empty_lines_of_several_columns(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n1,one\n\n2,two\n\n")
    assert [row["text"] for _, row in read_table(tmp_path / "a.csv")] == ["one", "two"]
    (tmp_path / "a.tsv").write_text("id\ttext\n1\tone\n\n2\ttwo\n")
    with pytest.raises(DataError, match="a.tsv, line 3 must have 2 fields"):
        list(read_table(tmp_path / "a.tsv"))


def test_a_long_field_of_csv(tmp_path):
    row = {"text": "a " * 100_000}  # Python's own limit is 131,072 characters
    with open_table(tmp_path / "table.csv") as table:
        table.write([row])
    assert [found for _, found in read_table(tmp_path / "table.csv")] == [row]


def test_json_that_is_no_unicode(tmp_path):
    path = tmp_path / "table.jsonl"
    path.write_text('{"text": "a\\ud83d\\ude00"}\n{"text": "a\\ud83d"}\n')
    rows = read_table(path)
    assert next(rows) == (1, {"text": "a\U0001f600"})
    with pytest.raises(DataError, match="line 2 must be a JSON object. Received: .*surrogates"):
        next(rows)


def test_parquet_is_read_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.inputs.tables.parquet_files.PARQUET_ROWS", 2)
    with open_table(tmp_path / "table.parquet") as table:
        table.write([{"n": n} for n in range(5)])
    assert list(read_table(tmp_path / "table.parquet")) == [(n + 1, {"n": n}) for n in range(5)]


def test_damaged_parquet(tmp_path):
    path = tmp_path / "table.parquet"
    for content in (b"", b"PAR1 and no table"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="table.parquet must be a Parquet file"):
            list(read_table(path))
    path.unlink()
    with pytest.raises(DataError, match="table.parquet must be a Parquet file"):
        list(read_table(path))
    with open_table(path) as table:
        table.write([{"text": f"text {n}"} for n in range(1000)])
    whole = bytearray(path.read_bytes())
    whole[40:400] = bytes(360)
    path.write_bytes(whole)
    with pytest.raises(DataError, match="Received after row 0"):
        list(read_table(path))
