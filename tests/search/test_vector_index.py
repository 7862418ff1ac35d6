"""The index on disk: what it finds, and that wrong files are refused."""

import copy
import json
import math
import os
import pickle
import shutil
import struct
import uuid
import zlib

import numpy as np
import pytest

from bert_tf.errors import DataError, UserError
from bert_tf.search import (
    VectorIndex,
    index_files,
    open_index_writer,
    quantize_vectors,
    quantized_top_k,
    search_recall,
    top_k,
    vector_index,
    vector_ranges,
)

PRECISIONS = ("float32", "float16", "int8", "binary")


def random_vectors(count, size, seed=0):
    return np.random.default_rng(seed).standard_normal([count, size]).astype(np.float32)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_finds_what_a_search_in_memory_finds(precision, similarity, tmp_path, monkeypatch):
    monkeypatch.setattr(vector_index, "_BLOCK_ROWS", 50)
    vectors, queries = random_vectors(211, 21), random_vectors(6, 21, 1)
    file = np.memmap(tmp_path / "vectors", np.float32, "w+", shape=vectors.shape)
    file[:] = vectors
    texts = [f"text {row}\n\u2028 ä" for row in range(211)]
    index = VectorIndex.build(
        tmp_path / "index",
        file,
        texts,
        ids=np.arange(211) + 7,
        precision=precision,
        similarity=similarity,
        model="minilm",
    )
    assert (len(index), index.vector_size, index.model) == (211, 21, "minilm")
    assert isinstance(index.vectors, np.memmap)
    stored, asked = (unit(x) if similarity == "cosine" else x for x in (vectors, queries))
    for k in (1, 5, 1000):
        scores, rows = index.search(queries, k)
        if precision.startswith("float"):
            expected = top_k(asked, stored.astype(precision), k, "dot")
        else:
            name, ranges = ("int8", vector_ranges(stored))
            if precision == "binary":
                name, ranges = "ubinary", None
            codes = quantize_vectors(stored, name, ranges)
            np.testing.assert_array_equal(index.vectors, codes)
            expected = quantized_top_k(asked, codes, k, name, ranges)
        np.testing.assert_allclose(scores, expected[0], atol=1e-5)
        np.testing.assert_array_equal(rows, expected[1])
        one = index.search(queries[2], k)
        np.testing.assert_array_equal(one[1], rows[2])
    assert index.items([3, 210, 3]) == [{"id": row + 7, "text": texts[row]} for row in (3, 210, 3)]
    names = {"index.json", "vectors.npy", "items.jsonl", "offsets.npy"}
    assert set(os.listdir(tmp_path / "index")) == names | (
        {"ranges.npy"} if precision == "int8" else set()
    )


def test_parts_and_a_sample_for_the_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr(index_files, "CALIBRATION_ROWS", 30)
    vectors = random_vectors(100, 9)
    with open_index_writer(tmp_path / "index", "int8", "dot") as writer:
        for start in range(0, 100, 16):
            writer.add(vectors[start : start + 16])
    index = VectorIndex(tmp_path / "index")
    ranges = vector_ranges(vectors[:32])  # the parts that have 30 rows
    np.testing.assert_array_equal(index.ranges, ranges)
    np.testing.assert_array_equal(index.vectors, quantize_vectors(vectors, "int8", ranges))
    options = {"precision": "int8", "similarity": "dot", "ranges": ranges}
    given = VectorIndex.build(tmp_path / "given", vectors, **options)
    np.testing.assert_array_equal(given.ranges, ranges)
    assert index.items([0, 99]) == [{}, {}]


def test_columns_of_pandas_are_taken_in_their_order(tmp_path, monkeypatch):
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    monkeypatch.setattr(vector_index, "_BLOCK_ROWS", 2)
    frame = pandas.DataFrame({"text": ["c", "a", "b"], "id": [7, 8, 9]}, index=[2, 0, 1])
    index = VectorIndex.build(tmp_path / "index", np.eye(3), frame["text"], frame["id"])
    expected = [{"id": 7, "text": "c"}, {"id": 8, "text": "a"}, {"id": 9, "text": "b"}]
    assert index.items([0, 1, 2]) == expected


def test_an_index_is_replaced_only_when_the_new_one_is_complete(tmp_path):
    VectorIndex.build(tmp_path / "index", np.eye(3), ["a", "b", "c"])
    with pytest.raises(UserError, match="finite"):
        VectorIndex.build(tmp_path / "index", np.full([2, 3], np.nan))
    with pytest.raises(ZeroDivisionError), open_index_writer(tmp_path / "index") as writer:
        writer.add(np.eye(3))
        raise ZeroDivisionError
    assert VectorIndex(tmp_path / "index").items([1]) == [{"text": "b"}]
    VectorIndex.build(tmp_path / "index", np.eye(4))
    assert len(VectorIndex(tmp_path / "index")) == 4
    assert os.listdir(tmp_path) == ["index"]


def test_ranges_and_float16(tmp_path):
    vectors = random_vectors(9, 4)
    ranges = vector_ranges(vectors)
    wide = ranges.astype(np.float64)
    options = {"precision": "int8", "similarity": "dot"}
    index = VectorIndex.build(tmp_path / "index", vectors, ranges=wide, **options)
    np.testing.assert_array_equal(index.ranges, ranges)
    for wrong in (ranges[:, :3], ranges[::-1], np.array([[-np.inf] * 4, [1] * 4]), wide * 1e300):
        with pytest.raises(UserError, match="`ranges` must be"):
            VectorIndex.build(tmp_path / "index", vectors, ranges=wrong, **options)
        with pytest.raises(UserError, match="`ranges` must be"):
            quantize_vectors(vectors, "int8", wrong)
    with pytest.raises(UserError, match="vectors of length 1 for the similarity 'cosine'"):
        VectorIndex.build(tmp_path / "index", vectors, precision="int8", ranges=wide)
    options = {"precision": "float16", "similarity": "dot"}
    with pytest.raises(UserError, match="65504"):
        VectorIndex.build(tmp_path / "index", 1e5 * vectors, **options)
    assert len(VectorIndex.build(tmp_path / "index", np.full([2, 3], 65504.0), **options)) == 2


@pytest.mark.parametrize(
    "item",
    [
        {"id": math.nan},
        {"id": b"bytes"},
        {"id": uuid.UUID(int=1)},
        {"id": [1]},
        {"id": 10**50},
        {"text": 5},
        {"text": "\ud800"},
        {"text": "a" * (16 * 2**20 + 1)},
    ],
)
def test_rows_with_an_item_that_could_not_be_read_are_not_added(item, tmp_path):
    items = {"id": 1, "text": "a"}, {"id": 2, "text": "b", **item}
    with open_index_writer(tmp_path / "index") as writer:
        with pytest.raises(UserError, match="Received"):
            writer.add(np.eye(2), [each["text"] for each in items], [each["id"] for each in items])
        writer.add(np.eye(3), ["x", "y", "z"], ["i", 2.5, np.int64(3)])
    index = VectorIndex(tmp_path / "index")
    np.testing.assert_array_equal(index.vectors, np.eye(3))
    expected = [{"id": "i", "text": "x"}, {"id": 2.5, "text": "y"}, {"id": 3, "text": "z"}]
    assert index.items([0, 1, 2]) == expected


def test_an_open_index_keeps_its_files(tmp_path):
    index = VectorIndex.build(tmp_path / "index", np.eye(3), ["a", "b", "c"])
    VectorIndex.build(tmp_path / "index", np.eye(4), ["other"] * 4)
    assert index.items([0, 1, 2]) == [{"text": "a"}, {"text": "b"}, {"text": "c"}]
    assert copy.copy(index).items([3]) == [{"text": "other"}]
    assert pickle.loads(pickle.dumps(index)).items([3]) == [{"text": "other"}]
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        VectorIndex(tmp_path / "index")
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("rows", [3, 4])
def test_an_index_that_is_replaced_while_it_is_opened(rows, tmp_path, monkeypatch):
    """Its vectors and its texts are those of one index."""
    VectorIndex.build(tmp_path / "index", np.eye(3), ["a", "b", "c"])
    changes = [lambda: VectorIndex.build(tmp_path / "index", np.eye(rows)[::-1], ["d"] * rows)]

    def open_array(path, *arguments):
        if path.endswith("offsets.npy") and changes:
            changes.pop()()
        return index_files.open_array(path, *arguments)

    monkeypatch.setattr(vector_index, "open_array", open_array)
    index = VectorIndex(tmp_path / "index")
    assert not changes
    np.testing.assert_array_equal(index.vectors, np.eye(rows)[::-1])
    assert index.items([0, 2]) == [{"text": "d"}, {"text": "d"}]


def test_other_files_are_not_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("home", "file"):
        with pytest.raises(UserError, match="new directory or an index"):
            VectorIndex.build(tmp_path / name, np.eye(3))
    assert (tmp_path / "home" / "letter.txt").read_text() == "dear"
    (tmp_path / "empty").mkdir()
    assert len(VectorIndex.build(tmp_path / "empty", np.eye(3))) == 3
    (tmp_path / "empty" / "corpus.jsonl").write_text("dear")
    with pytest.raises(UserError, match="would be lost .corpus.jsonl"):
        VectorIndex.build(tmp_path / "empty", np.eye(4))
    assert (tmp_path / "empty" / "corpus.jsonl").read_text() == "dear"


def test_refusals(tmp_path):
    index = VectorIndex.build(tmp_path / "index", np.eye(3), ["a", "b", "c"])
    for call in (
        lambda: index.search(np.ones([2, 4]), 1),
        lambda: index.search(np.ones([2, 3]), 0),
        lambda: index.search(np.full([2, 3], np.nan), 1),
        lambda: index.items([3]),
        lambda: index.items([-1]),
        lambda: VectorIndex.build(tmp_path / "other", np.zeros([0, 3])),
        lambda: VectorIndex.build(tmp_path / "other", np.eye(3), ["a"]),
        lambda: VectorIndex.build(tmp_path / "other", np.eye(3), ids=[1, 2, 3, 4]),
        lambda: VectorIndex.build(tmp_path / "other", np.eye(3), precision="int4"),
        lambda: VectorIndex.build(tmp_path / "other", np.eye(3), similarity="euclidean"),
        lambda: VectorIndex(tmp_path / "absent"),
        lambda: search_recall([[1]], [[1], [2]]),
        lambda: search_recall(np.zeros([0, 3]), np.zeros([0, 3])),
    ):
        with pytest.raises(UserError, match="Received"):
            call()
    with open_index_writer(tmp_path / "other") as writer:
        writer.add(np.eye(3), texts=["a", "b", "c"])
        for vectors, texts in ((np.eye(4), None), (np.eye(3), ["a"])):
            with pytest.raises(UserError, match="Received"):
                writer.add(vectors, texts)


class Poison:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def damage(name, change):
    def apply(directory):
        path = directory / name
        path.write_bytes(change(path.read_bytes()))

    return apply


def other_json(**values):
    def change(content):
        return json.dumps({**json.loads(content), **values}).encode()

    return damage("index.json", change)


def other_array(name, array):
    return lambda directory: np.save(directory / name, array, allow_pickle=True)


def named_pipe(name):
    def apply(directory):
        (directory / name).unlink()
        os.mkfifo(directory / name)

    return apply


def archive(directory):
    np.savez(directory / "other.npz", a=np.eye(3))
    (directory / "other.npz").rename(directory / "vectors.npy")


def npy_header(content, version=1):
    length = struct.pack("<H" if version == 1 else "<I", len(content) + 1)
    return lambda _: b"\x93NUMPY" + bytes([version, 0]) + length + content + b"\n"


FILES = ("index.json", "vectors.npy", "ranges.npy", "items.jsonl", "offsets.npy")


@pytest.mark.parametrize(
    "apply",
    [
        *(lambda directory, name=name: (directory / name).unlink() for name in FILES),
        *(named_pipe(name) for name in FILES),
        *(damage(name, lambda content: content[:-9]) for name in FILES),
        *(damage(name, lambda content: b"") for name in FILES),
        *(damage(name, lambda content: content + b"12345678") for name in FILES),
        *(damage(name, lambda content: pickle.dumps(Poison())) for name in FILES),
        other_array("vectors.npy", np.array([[Poison()] * 5] * 7)),
        other_array("vectors.npy", np.zeros([7, 5], np.uint8)),
        other_array("vectors.npy", np.asfortranarray(np.zeros([7, 5], np.int8))),
        other_array("vectors.npy", np.zeros([6, 5], np.int8)),
        other_array("offsets.npy", np.zeros([8], np.int64)),
        other_array("ranges.npy", np.full([2, 5], np.nan, np.float32)),
        other_array("ranges.npy", np.array([[1] * 5, [0] * 5], np.float32)),
        archive,
        damage("vectors.npy", lambda content: b"PK\3\4" + content),
        *(
            damage("vectors.npy", npy_header(content, version))
            for version in (1, 3)
            for content in (
                b"{'descr': '|i1', 'fortran_order': False, 'shape': (7, 5",
                b"{'descr': '|i1', 'fortran_order': False, 'shape': (7, %d)}" % 2**62,
                b"{'descr': '|i1', 'fortran_order': False, 'shape': (%d, 5)}" % 10**30,
                b"{'descr': '|i1', 'fortran_order': False, 'shape': (-1, 5)}",
                b"(" * 9000,
                b"-" * 9000 + b"1",
                b"\0",
                b'"' * 3,
            )
        ),
        other_json(precision="float32"),
        other_json(precision="int4"),
        other_json(num_rows=8),
        other_json(num_rows=0),
        other_json(num_rows=2**60),
        other_json(num_rows="7"),
        other_json(vector_size=6),
        other_json(similarity=1),
        other_json(format="bert_tf vector index 1"),
        other_json(crc32={}),
        other_json(vector_size=2**20 + 1),
        other_json(unknown=1),
    ],
)
def test_damaged_files_are_refused(apply, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    VectorIndex.build("index", random_vectors(7, 5), list("abcdefg"), precision="int8")
    apply(tmp_path / "index")
    with pytest.raises(DataError, match=r"index/.*Received"):
        VectorIndex("index")
    assert not os.path.exists("executed")


def test_damaged_items_are_refused(tmp_path):
    built = VectorIndex.build(tmp_path / "index", np.eye(4), list("abcd"))
    size = built._offsets[-1]
    for offsets in ([0, 5, 3, 9, size], [0, -5, 6, 9, size], [0, 2**40, 2**41, 9, size]):
        shutil.rmtree(tmp_path / "other", ignore_errors=True)
        shutil.copytree(tmp_path / "index", tmp_path / "other")
        np.save(tmp_path / "other" / "offsets.npy", np.array(offsets, np.int64))
        with pytest.raises(DataError, match="Received"):
            VectorIndex(tmp_path / "other", verify=False).items([0, 1, 2])
        with pytest.raises(DataError, match="offsets.npy must be.*Received: offsets that do not"):
            VectorIndex(tmp_path / "other")
    offsets = np.array([0, 2**40, 2**40 + 1, 2**40 + 2, 2**40 + 3], np.int64)
    np.save(tmp_path / "other" / "offsets.npy", offsets)
    os.truncate(tmp_path / "other" / "items.jsonl", offsets[-1])  # zeros that take no space
    with pytest.raises(DataError, match="row 0 from byte 0 to 1099511627776"):
        VectorIndex(tmp_path / "other", verify=False).items([0])
    path = tmp_path / "index" / "items.jsonl"
    path.write_bytes(path.read_bytes().replace(b'{"text": "b"}', b'{"text": "b",'))
    with pytest.raises(DataError, match="items.jsonl, row 1"):
        VectorIndex(tmp_path / "index", verify=False).items([1])
    assert VectorIndex(tmp_path / "index", verify=False).items([2]) == [{"text": "c"}]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_changed_bytes_are_refused_when_the_index_is_opened(precision, tmp_path):
    vectors = random_vectors(40, 16)
    VectorIndex.build(tmp_path / "index", vectors, ["text"] * 40, precision=precision)
    assert len(VectorIndex(tmp_path / "index")) == 40
    for name in set(os.listdir(tmp_path / "index")) - {"index.json"}:
        path = tmp_path / "index" / name
        whole = path.read_bytes()
        for place in (len(whole) - 1, len(whole) // 2):
            if name == "items.jsonl" or place >= 128:
                path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
                with pytest.raises(DataError, match="index/.*Received"):
                    VectorIndex(tmp_path / "index")
        path.write_bytes(whole)


def forged(directory, name, array):
    """Replaces an array and its checksum."""
    np.save(directory / name, array)
    values = json.loads((directory / "index.json").read_text())
    values["crc32"][name] = zlib.crc32(np.ascontiguousarray(array))
    (directory / "index.json").write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("precision", "similarity", "name", "change"),
    [
        ("float32", "dot", "vectors.npy", lambda array: array * np.nan),
        ("float16", "dot", "vectors.npy", lambda array: array * np.inf),
        ("float32", "cosine", "vectors.npy", lambda array: array * np.float32(1e28)),
        ("float32", "cosine", "vectors.npy", lambda array: array * np.float32(1.01)),
        ("float16", "cosine", "vectors.npy", lambda array: array * np.float16(0.9)),
        ("int8", "cosine", "ranges.npy", lambda array: array * np.float32(1e28)),
        ("int8", "cosine", "ranges.npy", lambda array: np.abs(array) * 0 + [[0.9], [1]]),
        ("int8", "dot", "ranges.npy", lambda array: array * 0 + [[-3e38], [3e38]]),
        ("binary", "cosine", "vectors.npy", lambda array: array | 1),
    ],
)
def test_forged_values_are_refused_when_the_index_is_opened(
    precision, similarity, name, change, tmp_path
):
    options = {"precision": precision, "similarity": similarity}
    VectorIndex.build(tmp_path / "index", random_vectors(30, 6), **options)
    array = np.load(tmp_path / "index" / name)
    forged(tmp_path / "index", name, array)
    assert len(VectorIndex(tmp_path / "index")) == 30
    with np.errstate(invalid="ignore"):
        forged(tmp_path / "index", name, change(array).astype(array.dtype))
    with pytest.raises(DataError, match="index/.*Received"):
        VectorIndex(tmp_path / "index")


def test_rows_of_length_zero_and_ranges_of_a_sample(tmp_path):
    """What the writer accepts is opened again."""
    vectors = random_vectors(300, 24) * np.arange(300)[:, None].astype(np.float32)
    for precision in PRECISIONS:
        for ranges in (None, vector_ranges(unit(np.abs(random_vectors(3, 24)) + 1))):
            options = {"ranges": ranges} if precision == "int8" else {}
            VectorIndex.build(tmp_path / "index", vectors, precision=precision, **options)
            assert len(VectorIndex(tmp_path / "index")) == 300


def test_a_file_of_holes_takes_no_memory(tmp_path):
    """A sparse file of 20 kB may say that it has any size."""
    with open_index_writer(tmp_path / "index", "int8", "dot") as writer:
        with pytest.raises(UserError, match="at most 1048576 dimensions"):
            writer.add(np.zeros([1, 2**20 + 1], np.float32))
        writer.add(np.zeros([1, 2**20], np.float32))
    assert VectorIndex(tmp_path / "index").vector_size == 2**20


def test_recall():
    exact = np.array([[0, 1, 2], [3, 4, 5]])
    assert search_recall(exact[:, ::-1], exact) == 1.0
    assert search_recall([[0, 9, 8], [5, 3, 7]], exact) == pytest.approx(0.5)


def clustered(count, size):
    centres = random_vectors(20, size, 5)
    return centres[np.arange(count) % 20] + 0.5 * random_vectors(count, size)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_usearch(precision, tmp_path):
    pytest.importorskip("usearch", reason="needs usearch")
    vectors = clustered(2000, 32)
    index = VectorIndex.build(tmp_path / "index", vectors, precision=precision)
    queries = unit(clustered(50, 32) + 0.1)
    _, exact = index.search(queries, 10, rescore_multiplier=0)
    if precision == "int8":
        queries = quantize_vectors(queries, "int8", index.ranges)
    elif precision == "binary":
        queries = quantize_vectors(queries, "ubinary")
    found = index.to_usearch().search(queries, 10).keys
    assert search_recall(found, exact) > 0.8


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("exact", [False, True])
def test_faiss(precision, exact, tmp_path):
    pytest.importorskip("faiss", reason="needs faiss")
    index = VectorIndex.build(tmp_path / "index", clustered(2000, 32), precision=precision)
    if precision == "int8":
        with pytest.raises(UserError, match="to_usearch"):
            index.to_faiss()
        return
    queries = unit(clustered(50, 32) + 0.1)
    _, rows = index.search(queries, 10, rescore_multiplier=0)
    if precision == "binary":
        queries = quantize_vectors(queries, "ubinary")
    _, found = index.to_faiss(exact=exact).search(queries, 10)
    assert search_recall(found, rows) > (0.95 if exact and precision != "binary" else 0.7)
