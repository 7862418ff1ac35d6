"""Sorted runs of records on the disk, which shuffle more records than fit into memory.

A run is a file of records, sorted by random keys. All runs merged by key, one slice of the keys
after the other, are a uniform shuffle of all records.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.base.array_files import save_array
from bert_tf.base.regular_files import open_regular

MERGE_BYTES = 256 << 20  # of records in memory at a time


def write_sorted_run(path: str, keys: Sequence[int], records: Sequence[bytes]) -> None:
    """Writes a run (`path`, `path`.keys.npy, `path`.splits.npy); `keys` are below 2^64."""
    keys = np.asarray(keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    splits = np.cumsum([0, *(len(records[index]) for index in order)], dtype=np.int64)
    with open(path, "wb") as file:
        file.writelines(records[index] for index in order)
    save_array(path + ".keys.npy", keys[order])
    save_array(path + ".splits.npy", splits)


def merge_runs(paths: Sequence[str], merge_bytes: int = MERGE_BYTES) -> Iterator[bytes]:
    """Yields the records of all runs in the order of their keys, or of `paths` for equal keys.

    About `merge_bytes` are in memory at a time, on which the order does not depend.
    """
    total = sum(os.path.getsize(path) for path in paths)
    slices = max(1, -(-total // merge_bytes))
    edges = [2**64 * index // slices for index in range(slices + 1)]
    for low, high in zip(edges, edges[1:]):
        keys: list[np.ndarray] = []
        records: list[bytes] = []
        for path in paths:
            part_keys, part = _read_slice(path, low, high - 1)
            keys.append(part_keys)
            records += part
        for place in np.argsort(np.concatenate(keys), kind="stable"):
            yield records[place]


def _read_slice(path: str, low: int, high: int) -> tuple[np.ndarray, list[bytes]]:
    """Returns the keys in [low, high] and their records."""
    keys = np.load(path + ".keys.npy", mmap_mode="r")
    first = np.searchsorted(keys, np.uint64(low))
    end = np.searchsorted(keys, np.uint64(high), side="right")
    splits = np.load(path + ".splits.npy", mmap_mode="r")[first : end + 1].tolist()
    with open_regular(path) as file:
        file.seek(splits[0])
        records = [file.read(stop - start) for start, stop in zip(splits, splits[1:])]
    return np.array(keys[first:end]), records
