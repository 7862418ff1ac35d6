"""A corpus in parts: no row is lost or read twice, and damage costs the row that it is in."""

import csv
import gzip
import json
import pathlib
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf

from bert_tf.base.crc32c import crc32c, masked
from bert_tf.beam import readers
from bert_tf.beam.readers import read_range
from bert_tf.beam.shards import plan_shards
from bert_tf.beam.workspace import DeadLetter
from bert_tf.errors import UserError

TEXTS = ["one", "a longer text", "é", "", "x" * 40, "last"]

CUT_GZIP = gzip.compress(b"one\n" * 9, mtime=0)[:-8]  # without its checksum


def read(path, num_shards=1, names=("text",)):
    """The values of the rows in order, and the dead letters."""
    shards = plan_shards([str(path)], num_shards=num_shards)
    assert len(shards) == num_shards
    parts = [part for shard in shards for part in shard.ranges]
    found = [row for part in parts for row in read_range(part, names)]
    assert all(row.source == str(path) for row in found)
    letters = [row for row in found if isinstance(row, DeadLetter)]
    return [row for row in found if not isinstance(row, DeadLetter)], letters


def texts(rows):
    return [row.columns["text"] for row in rows]


def write_records(path, values):
    with tf.io.TFRecordWriter(str(path)) as writer:
        for value in values:
            feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
            features = tf.train.Features(feature={"text": feature})
            writer.write(tf.train.Example(features=features).SerializeToString())


def write(path):
    """A file of `TEXTS` in the format of its ending."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table({"text": TEXTS}), path, row_group_size=1)
    elif path.suffix == ".tfrecord":
        write_records(path, [text.encode() for text in TEXTS])
    elif path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in TEXTS)
        )
    elif path.suffix == ".txt":
        path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(TEXTS).encode())
    else:
        separator = {".csv": ",", ".tsv": "\t"}[path.suffix]
        rows = [f"{number}{separator}{text}\n" for number, text in enumerate(TEXTS)]
        path.write_text("".join([f"id{separator}text\n", *rows]), encoding="utf-8")


@pytest.mark.parametrize("suffix", ["txt", "jsonl", "csv", "tsv", "parquet", "tfrecord"])
def test_any_number_of_shards_has_every_row_once_in_order(suffix, tmp_path):
    path = tmp_path / f"corpus.{suffix}"
    write(path)
    places = [row.position for row in read(path)[0]]
    for num_shards in range(1, 24):
        rows, letters = read(path, num_shards)
        assert texts(rows) == TEXTS and not letters, num_shards
        assert [row.position for row in rows] == places, num_shards
    if suffix not in ("parquet", "csv"):
        content = path.read_bytes()
        for row in rows:
            assert row.columns["text"].encode() in content[row.position :][:120]


def test_shards_are_of_similar_size_in_the_order_of_the_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.txt").write_text("a line\n" * 100)
    shards = plan_shards([str(tmp_path / "*.txt")], num_shards=4)
    sizes = [sum(part.stop - part.start for part in shard.ranges) for shard in shards]
    assert sizes == [350] * 4
    assert [pathlib.Path(shard.ranges[0].path).stem for shard in shards] == [*"aabb"]
    pq.write_table(pa.table({"text": ["a"] * 40}), tmp_path / "groups.parquet", row_group_size=10)
    groups = plan_shards([str(tmp_path / "groups.parquet")], num_shards=2)
    assert [(shard.ranges[0].start, shard.ranges[0].stop) for shard in groups] == [
        (0, 2),
        (2, None),
    ]


def test_a_file_with_brackets_in_its_name(tmp_path):
    for name in ("a[1].txt", "a1.txt"):
        (tmp_path / name).write_text(name)
    for pattern, found in (("a[1].txt", "a[1].txt"), ("a[12].txt", "a1.txt")):
        ((part,),) = (shard.ranges for shard in plan_shards([str(tmp_path / pattern)]))
        assert part.path == str(tmp_path / found)


def test_files_that_are_missing_or_of_no_format_are_refused(tmp_path):
    with pytest.raises(UserError, match="must match at least one file"):
        plan_shards([str(tmp_path / "*.txt")])
    (tmp_path / "a.docx").write_text("a")
    with pytest.raises(UserError, match="The ending of an input file must be one of"):
        plan_shards([str(tmp_path / "a.docx")])
    assert plan_shards([str(tmp_path / "a.docx")], "text")[0].ranges[0].format == "text"


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.txt", b"\none\r\n \r\n\nlast\n\n"),
        ("a.tsv", b"\ntext\n\none\r\n \r\n\nlast\n\n"),
        ("a.csv", b"\ntext\n\none\r\n \r\n\nlast\n\n"),
    ],
)
def test_an_empty_line_is_a_row(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    for num_shards in (1, 3):
        rows, letters = read(tmp_path / name, num_shards)
        assert texts(rows) == ["", "one", " ", "", "last", ""] and not letters


def test_empty_lines_between_objects_and_between_rows_of_csv_are_no_rows(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "last"}\n \n')
    (tmp_path / "a.csv").write_text("id,text\n\n1,one\n\n2,last\n\n")
    for name in ("a.jsonl", "a.csv"):
        rows, letters = read(tmp_path / name)
        assert texts(rows) == ["one", "last"] and not letters


def test_quoted_newlines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,text\n1,"a\nb ""c"""\n2,end\n')
    rows, letters = read(path)
    assert texts(rows) == ['a\nb "c"', "end"] and not letters


@pytest.mark.parametrize(
    "name, content, expected, damaged",
    [
        ("a.txt", b"one\ntwo \xff\nlast", ["one", "last"], [(4, "must be UTF-8")]),
        ("a.jsonl", b'{"text":"one"}\n{"te\n[1]\n{"text":"last"}', ["one", "last"],
         [(15, "must be a JSON object"), (20, "Received: list")]),
        ("b.jsonl", b'{"t":"\\ud83d\\uD800"}\n{"t":' + b"[" * 99 + b"]" * 99 + b"}", [],
         [(0, "surrogates not allowed"), (21, "more than 64 levels")]),
        ("c.jsonl", b'{"text":"\\ud83d\\ude00"}', ["\U0001f600"], []),
        ("a.csv", b'id,text\n1,"un\n2,"fine"\n3,x,y\n4,\xe9\n5,last', ["fine", "last"],
         [(8, "must be CSV"), (23, "must have 2 fields"), (29, "must be UTF-8")]),
        ("b.csv", b'id,text\n1,fine\n2,"un\n3,last\n', ["fine", "last"], [(15, "must be CSV")]),
        ("c.csv", b"id,id\n1,2\n", [], [(None, "columns of different names")]),
        ("d.csv", b"id,\xff\n1,2\n", [], [(None, "The header is damaged")]),
        ("a.tsv", b"id\ttext\n1\tone\n2\n3\tlast", ["one", "last"], [(14, "must have 2 fields")]),
        ("b.tsv", b"id\tid\n1\tone\n", [], [(None, "columns of different names")]),
        ("c.tsv", b"id\ttext\n1\tone\n\n", ["one"], [(14, "must have 2 fields")]),
        ("a.parquet", b"text", [], [(None, "must be a Parquet file")]),
        ("a.tfrecord", b"short", [], [(0, "a cut file")]),
        ("a.txt.gz", CUT_GZIP, ["one"] * 9, [(32, "readable to its end")]),
        ("b.txt.gz", b"not gzip", [], [(None, "readable to its end")]),
    ],
)  # fmt: skip
def test_damaged_rows_become_dead_letters(name, content, expected, damaged, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    for num_shards in (1, 3):
        rows, letters = read(path, num_shards)
        assert texts(rows) == expected
        assert [letter.position for letter in letters] == [position for position, _ in damaged]
        for letter, (_, error) in zip(letters, damaged):
            assert error in letter.error


def test_damaged_records(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"one", b"two", b"\xff", b"last"])
    content = path.read_bytes()
    second = struct.unpack("<Q", content[:8])[0] + 16

    def changed(place):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        rows, letters = read(path)
        return texts(rows), [(letter.position, letter.error) for letter in letters]

    found, (wrong, binary) = changed(second + 14)  # in the record itself
    assert found == ["one", "last"] and wrong[0] == second and binary[0] > second
    assert "must have the checksum" in wrong[1] and "numbers or UTF-8" in binary[1]
    found, (wrong,) = changed(second + 1)  # in its length
    assert found == ["one"] and wrong[0] == second and "begin with its length" in wrong[1]
    path.write_bytes(content[:-1])
    rows, letters = read(path)
    assert texts(rows) == ["one", "two"] and "ends before" in letters[-1].error


def test_a_record_that_is_too_long_costs_itself_alone(tmp_path, monkeypatch):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"one", b"x" * 100, b"last"])
    monkeypatch.setattr(readers, "_MAX_RECORD_BYTES", 90)
    for file in (path, tmp_path / "a.tfrecord.gz"):
        file.write_bytes(path.read_bytes() if file == path else gzip.compress(path.read_bytes()))
        rows, (letter,) = read(file)
        assert texts(rows) == ["one", "last"] and "at most 90 bytes" in letter.error
    length = struct.pack("<Q", 2**63)
    path.write_bytes(length + struct.pack("<I", masked(crc32c(length))) + b"abc")
    rows, (letter,) = read(path)
    assert not rows and f"Received: {2**63}" in letter.error


def test_a_damaged_row_group_costs_its_rows_alone(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"text": [f"text {number}" for number in range(40)]})
    options = {"use_dictionary": False, "write_page_checksum": True}
    pq.write_table(table, path, row_group_size=10, **options)
    content = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(1).column(0)
    content[column.data_page_offset + column.total_compressed_size - 2] ^= 1
    path.write_bytes(content)
    for num_shards in (1, 4):
        rows, (letter,) = read(path, num_shards)
        assert [row.position for row in rows] == [*range(10), *range(20, 40)]
        assert letter.position == 10 and letter.element == "rows 10 to 19"
        assert letter.error.startswith("Row group 1 must not be damaged")
    path.write_bytes(content[:-4])  # as of a copy that was interrupted
    rows, (letter,) = read(path, 2)
    assert not rows and letter.position is None


def test_parquet_texts_that_are_not_utf8(tmp_path):
    path = tmp_path / "a.parquet"
    values = pa.array([b"one", b"\xff", b"last"]).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"text": values}), path)
    rows, (letter,) = read(path)
    assert texts(rows) == ["one", "last"] and letter.position == 1 and "UTF-8" in letter.error


def test_a_line_without_an_end_does_not_fill_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_ROW_BYTES", 20)
    limit = csv.field_size_limit()
    try:
        for name, head in (("a.txt", ""), ("a.csv", "text\n")):
            path = tmp_path / name
            path.write_text(head + "one\n" + "x" * 50 + "\nlast\n")
            rows, (letter,) = read(path, 1)
            assert texts(rows) == ["one", "last"] and letter.position == len(head) + 4
            assert len(letter.element) == 20 and "20 bytes" in letter.error
    finally:
        csv.field_size_limit(limit)  # the reader sets it for the whole process


def test_two_texts_per_line(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("q\tc\nq\nq\tc\td\n\n")
    (row,), letters = read(path, names=("question", "context"))
    assert row.columns == {"question": "q", "context": "c"}
    assert [letter.position for letter in letters] == [4, 6, 12]


def test_parquet_files_of_strangers(tmp_path):
    """What is too large or has no date of a calendar costs a row group, or nothing."""
    path = tmp_path / "a.parquet"
    far = pa.array([0, 2**62], pa.timestamp("us", "Mars/Olympus"))
    pq.write_table(pa.table({"text": ["one", "two"], "time": far}), path)
    rows, letters = read(path)
    assert texts(rows) == ["one", "two"] and not letters
    assert rows[0].columns["time"].year == 1970 and rows[1].columns["time"] is None
    options = {"compression": "zstd", "write_statistics": False, "row_group_size": 1}
    pq.write_table(pa.table({"text": ["one", "a" * 70_000_000, "two"]}), path, **options)
    rows, letters = read(path)
    assert texts(rows) == ["one", "two"]
    ((position, error),) = ((letter.position, letter.error) for letter in letters)
    assert position == 1 and "must not take more than 67,108,864 bytes" in error
