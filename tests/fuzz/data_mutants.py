"""Search indexes, TFRecord and Parquet files that lie, with right checksums."""

import io
import json
import math
import random
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from bert_tf.base.crc32c import crc32c, masked
from tests.fuzz import byte_mutants


def index_mutants(files: dict[str, bytes], seed: int) -> Iterator[dict[str, bytes]]:
    """Search indexes with other arrays, of which the checksums are right."""
    rng = random.Random(seed)
    while True:
        changed = dict(files)
        values = json.loads(files["index.json"])
        if rng.random() < 0.2:
            key = rng.choice(["num_rows", "vector_size", "precision", "similarity"])
            values[key] = rng.choice([1, 8, 40, 2**20, 2**31, "float32", "binary", "dot"])
        for _ in range(rng.choice((1, 1, 2))):
            name = rng.choice(sorted(values["crc32"]))
            start = 128 if name.endswith(".npy") else 0
            head, body = files[name][:start], bytearray(files[name][start:])
            extreme = rng.choice([*byte_mutants.EXTREMES, *_FLOATS])
            for _ in range(rng.choice((1, 1, 30))):
                place = rng.randrange(len(body)) // 4 * 4
                body[place : place + len(extreme)] = extreme
            changed[name] = head + bytes(body[: len(files[name]) - start])
            values["crc32"][name] = zlib.crc32(changed[name][start:])
        changed["index.json"] = json.dumps(values).encode()
        yield changed


_FLOATS = [struct.pack("<f", value) for value in (math.nan, math.inf, 3e38, -3e38, 1e-40, 1.5)]


def record_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """TFRecord files whose lengths and examples are others, with right checksums."""
    rng = random.Random(seed)
    length = int.from_bytes(content[:8], "little")
    record = content[12 : 12 + length]
    damaged = byte_mutants.mutants(record, seed)
    while True:
        made = b""
        for _ in range(rng.choice((1, 2, 5))):
            body = next(damaged) if rng.random() < 0.5 else record
            size = len(body)
            if rng.random() < 0.3:
                size = rng.choice([0, 1, size - 1, size + 1, 2**31, 2**40, 2**63, 2**64 - 1])
            head = size.to_bytes(8, "little")
            made += head + masked(crc32c(head)).to_bytes(4, "little")
            made += body + masked(crc32c(body)).to_bytes(4, "little")
        yield made


def parquet_mutants(content: bytes, seed: int) -> Iterator[bytes]:
    """Well-formed files of few bytes and many values, and damaged ones of them."""
    rng = random.Random(seed)
    while True:
        made = _parquet(rng)
        for _ in range(rng.choice((0, 0, 1, 3))):
            made = next(byte_mutants.mutants(made, rng.randrange(2**32), rng.choice((60, None))))
        yield made


def _parquet(rng):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = rng.choice((1, 3, 200))
    column = rng.choice([_long_texts, _long_lists, _times, _nulls])(pa, rng, rows)
    options = {
        "compression": rng.choice(["none", "snappy", "gzip", "brotli", "zstd", "lz4"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": rng.random() < 0.5,
        "write_statistics": rng.random() < 0.2,
        "write_page_checksum": rng.random() < 0.2,
        "row_group_size": rng.choice((1, 2, 10**6)),
    }
    if not options["use_dictionary"] and column.type == pa.string():
        names = ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]
        options["column_encoding"] = {"a": rng.choice(names)}
    buffer = io.BytesIO()
    pq.write_table(pa.table({"number": range(rows), "a": column}), buffer, **options)
    return buffer.getvalue()


def _long_texts(pa, rng, rows):
    size = rng.choice((10, 10**5, 2 * 10**7 // rows))
    kind = rng.choice([pa.string(), pa.binary(size), pa.large_string()])
    return pa.array(["a" * size] * rows, kind)


def _long_lists(pa, rng, rows):
    sizes = [rng.choice((0, 1, 100, 4 * 10**6 // rows)) for _ in range(rows)]
    splits = pa.array(np.cumsum([0, *sizes]), pa.int32())
    values = pa.array(np.zeros(sum(sizes), rng.choice([np.int8, np.float32])))
    return pa.ListArray.from_arrays(splits, values)


def _times(pa, rng, rows):
    zone = rng.choice([None, "UTC", "Mars/Olympus", "Europe", "../x", "+99:99"])
    unit = rng.choice(["ms", "us", "ns"])
    kind = rng.choice([pa.timestamp(unit, zone), pa.duration(unit)])
    values = pa.array([rng.choice([0, 2**62, -(2**62), None]) for _ in range(rows)], pa.int64())
    return values.view(kind)


def _nulls(pa, rng, rows):
    inner = rng.choice([pa.string(), pa.list_(pa.int8(), 1000), pa.decimal128(38, 3)])
    return pa.nulls(rows, rng.choice([inner, pa.list_(inner), pa.struct({"b": inner})]))
