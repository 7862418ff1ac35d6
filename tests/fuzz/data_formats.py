"""The formats of data, as `formats.py` has those of models: indexes, tables, records, logs."""

import itertools

import numpy as np

from tests.fuzz import byte_mutants, data_mutants
from tests.fuzz.json_mutants import mutants as json_mutants

_INDEX_FILES = ("vectors.npy", "ranges.npy", "items.jsonl", "offsets.npy")


def _write_index(directory):
    from bert_tf.search import VectorIndex

    vectors = np.random.default_rng(0).standard_normal([40, 9])
    VectorIndex.build(directory, vectors, [f"text {row}" for row in range(40)], precision="int8")


def _open_index(path):
    from bert_tf.search import VectorIndex

    index = VectorIndex(path)
    scores, rows = index.search(np.eye(2, index.vector_size), 3)
    assert np.abs(scores).max() < 3, "the cosine of vectors"  # of int8, it is not exact
    return {"scores": scores, "rows": rows, "items": np.array(str(index.items(rows[0])))}


def _write_parquet(directory):
    import pyarrow as pa
    import pyarrow.parquet as pq

    directory.mkdir(parents=True)
    rows = range(40)
    columns = {
        "text": [f"text {row % 7}" for row in rows],
        "tokens": [["a", "b"] * (row % 3) for row in rows],
        "number": list(rows),
        "time": pa.array(rows, pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(columns), directory / "table.parquet", write_page_checksum=True)


def _open_parquet(path):
    from bert_tf.inputs.tables.table_files import read_table

    rows = list(itertools.islice(read_table(path / "table.parquet"), 5000))
    return {"number": np.array([str(row.get("number")) for _, row in rows])}


def _write_records(directory):
    from bert_tf.tasks.pretraining.examples import PretrainingExample
    from tests.tasks.pretraining.record_writer import write_pretraining_records

    directory.mkdir(parents=True)
    example = PretrainingExample([2, 4, 9, 3, 7, 3], [0, 0, 0, 0, 1, 1], [1], [8], True)
    write_pretraining_records(directory / "records", [example] * 3, 12, 2)


def _open_records(path):
    from bert_tf.tasks.pretraining.records import check_records

    return {"counts": np.array(check_records([path / "records"], 12, 2))}


def _write_log(directory):
    from bert_tf.training.callbacks import JsonLines

    directory.mkdir(parents=True)
    for step in range(1, 5):
        JsonLines(directory / "log.jsonl", step).write(step, {"loss": 0.5, "rate": 1e-4})


def _open_log(path):
    from bert_tf.training.callbacks import JsonLines, read_json_lines

    read_json_lines(path / "log.jsonl")
    JsonLines(path / "log.jsonl", initial_step=3)
    return {}


def _index_more(directory, seed):
    files = {name: (directory / name).read_bytes() for name in ("index.json", *_INDEX_FILES)}
    return data_mutants.index_mutants(files, seed)


# The arguments of `Format` by name.
PARTS = {
    "search index": {
        "write": _write_index,
        "open": _open_index,
        "lies": {"index.json": json_mutants, **dict.fromkeys(_INDEX_FILES, byte_mutants.mutants)},
        "notices_damage": _INDEX_FILES,
        "more": _index_more,
    },
    "parquet": {
        "write": _write_parquet,
        "open": _open_parquet,
        "lies": {"table.parquet": data_mutants.parquet_mutants},
        "many": 4000,
    },
    "tfrecord": {
        "write": _write_records,
        "open": _open_records,
        "lies": {"records": data_mutants.record_mutants},
        "notices_damage": ("records",),
        "many": 4000,
    },
    "log": {"write": _write_log, "open": _open_log, "lies": {"log.jsonl": byte_mutants.mutants}},
}
