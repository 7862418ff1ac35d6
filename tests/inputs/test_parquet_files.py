"""Parquet files of strangers: damage, few bytes that stand for gigabytes, dates of no calendar."""

import datetime

import numpy as np
import pytest

from bert_tf.errors import DataError
from bert_tf.inputs.tables import parquet_pages
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.table_writer import open_table
from tests.fuzz.runner import memory, reset_peak

pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow")

MEGABYTE = 2**20
_PAGES = {"use_dictionary": False, "write_statistics": False}


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **{"compression": "zstd", **options})
    return path


def lists(lengths, values=None):
    splits = pa.array(np.cumsum([0, *lengths]), pa.int32())
    values = np.zeros(sum(lengths), np.int8) if values is None else values
    return pa.ListArray.from_arrays(splits, pa.array(values))


def batches_of(path):
    """The sizes of the batches in which the rows are decoded."""
    with open(path, "rb") as file:
        schema = pq.ParquetFile(file).schema
        (group,) = parquet_pages.read_row_groups(file)
        return parquet_pages.rows_together(file, schema, group, list(range(len(schema))), 1024)


def test_a_page_with_another_checksum_is_refused(tmp_path):
    texts = {"text": [f"the text of row {row}" for row in range(99)]}
    options = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    path = write(tmp_path / "table.parquet", texts, **options)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"the text of row 50", b"the text of row 60"))
    with pytest.raises(DataError, match="table.parquet must be.*after row 0.*CRC"):
        list(read_table(path))


def test_a_few_bytes_take_no_gigabytes(tmp_path):
    """One long text, to which all rows refer; the file has 400 bytes."""
    options = {"write_statistics": False}
    path = write(tmp_path / "a.parquet", {"text": ["a" * MEGABYTE] * 200}, **options)
    assert path.stat().st_size < 600
    reset_peak()
    before = memory("VmRSS")
    assert sum(len(row["text"]) for _, row in read_table(path)) == 200 * MEGABYTE
    assert memory("VmHWM") - before < 150 * MEGABYTE


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ({"a": ["a" * 50_000] * 200}, {"write_statistics": False}),
        ({"a": [b"a" * 50_000] * 200}, {"write_statistics": False}),
        ({"a": pa.array([b"a" * 50_000] * 200, pa.binary(50_000))}, {"write_statistics": False}),
        (
            {"a": ["a" * 50_000 + str(row) for row in range(200)]},
            {**_PAGES, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
        ),
        ({"a": [["a" * 1000] * 50] * 200}, {"write_statistics": False}),
        ({"a": lists([1_500] * 200)}, {}),
        ({"a": lists([1_500] * 200)}, {"data_page_version": "2.0"}),
        ({"a": lists([0, 2_000, 1, 1_499, 1] * 40)}, {"compression": "none"}),
        ({"a": lists([1, 1, 500] * 99), "b": ["b" * 10_000] * 297}, {"write_statistics": False}),
    ],
)  # fmt: skip
def test_large_rows_are_decoded_few_at_a_time(columns, options, tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet", columns, **options)
    assert batches_of(path) == 1024
    monkeypatch.setattr(parquet_pages, "BATCH_BYTES", MEGABYTE)
    assert 1 <= batches_of(path) <= 64
    assert [row for _, row in read_table(path)] == pa.table(columns).to_pylist()


def test_many_columns(tmp_path):
    """Their pages are decoded together: of texts as usual at once, of few bytes not at all."""
    texts = [" ".join(map(str, range(row, row + 99))) for row in range(4096)]
    columns = {f"text {number}": texts for number in range(40)}
    assert batches_of(write(tmp_path / "a.parquet", columns, **_PAGES)) == 1024
    columns = {f"text {number}": ["a" * 1_000_000] for number in range(80)}
    path = write(tmp_path / "b.parquet", columns, **_PAGES)
    with pytest.raises(DataError, match="A row, mostly of the column.* must not take more than"):
        next(read_table(path))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_is_too_large_is_refused_before_it_is_made(version, tmp_path):
    options = {"data_page_version": version, **_PAGES}
    columns = [
        {"a": ["a" * 70_000_000]},
        {"a": lists([0, 3_000_000, 0])},
        {"a": [[["a" * 1000] * 2] * 40_000]},
    ]
    for number, made in enumerate(columns):
        path = write(
            tmp_path / f"{number}.parquet", {"text": ["a"] * len(made["a"]), **made}, **options
        )
        with pytest.raises(DataError, match="column 'a.* must not take more than 67,108,864 bytes"):
            next(read_table(path))
        assert len(list(read_table(path, columns=["text"]))) == len(made["a"])


def test_pages_that_lie(tmp_path):
    """A page of which the header is another one: an error of ours, whatever it says."""
    path = write(tmp_path / "a.parquet", {"a": ["text"] * 9}, use_dictionary=False)
    content = path.read_bytes()
    assert content[4:6] == b"\x15\x00"  # the kind of the first page
    for header in (b"\x15\x00\x15\xfe\xff\xff\xff\x0f", b"\x15\x00\x15\x01", b"\x00", b"\xff" * 40):
        path.write_bytes(content[:4] + header + content[4 + len(header) :])
        with pytest.raises(DataError, match="must be a Parquet file. Received after row 0"):
            list(read_table(path))


def test_dates_that_python_does_not_have(tmp_path, caplog):
    """They cost neither the run nor the other values of the row."""
    far, stamp = 2**62, pa.timestamp("us")
    columns = {
        "text": ["one", "two"],
        "stamp": pa.array([0, far], stamp),
        "date": pa.array([0, 2**31 - 1], pa.date32()),
        "zone": pa.array([0, 1], pa.timestamp("s", "Mars/Olympus")),
        "list": pa.array([[1], [far, 1]], pa.list_(stamp)),
        "struct": pa.array([{"a": 1}, {"a": far}], pa.struct({"a": stamp})),
        "map": pa.array([[("k", 1)], [("k", far)]], pa.map_(pa.string(), stamp)),
    }
    path = write(tmp_path / "a.parquet", columns)
    (_, first), (_, second) = read_table(path)
    day = datetime.datetime(1970, 1, 1)
    later = day + datetime.timedelta(microseconds=1)
    assert first == {
        "text": "one",
        "stamp": day,
        "date": day.date(),
        "zone": day,
        "list": [later],
        "struct": {"a": later},
        "map": [("k", later)],
    }
    assert second == {
        "text": "two",
        "stamp": None,
        "date": None,
        "zone": day + datetime.timedelta(seconds=1),
        "list": [None, later],
        "struct": {"a": None},
        "map": [("k", None)],
    }
    assert len(caplog.records) == 6 and "a.parquet: the column 'stamp'" in caplog.text
    with open_table(tmp_path / "b.parquet") as table:  # so a copy has the same types
        for row in (first, second):
            table.write([{name: value for name, value in row.items() if name != "map"}])


def test_columns_that_are_not_asked_for_are_not_read(tmp_path):
    columns = {"text": ["a", "b"], "text.part": ["c", "d"], "other": [["e"], None]}
    path = write(tmp_path / "a.parquet", columns)
    rows = [row for _, row in read_table(path, columns=["text"])]
    assert rows == [{"text": "a"}, {"text": "b"}]
    assert next(read_table(path, columns=["text", "absent"]))[1].keys() == columns.keys()


def test_a_row_group_without_rows(tmp_path):
    path = write(tmp_path / "a.parquet", {"a": pa.array([], pa.string()), "b": lists([])})
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert list(read_table(path)) == []


def test_rows_without_columns(tmp_path):
    path = write(tmp_path / "a.parquet", {"a": [1, 2]})
    pq.write_table(pq.read_table(path).drop(["a"]), path)
    with open(path, "rb") as file:
        rows = pq.ParquetFile(file).metadata.num_rows
    assert rows in (0, 2)
    if rows:
        with pytest.raises(DataError, match="Rows must have columns"):
            list(read_table(path))
