"""Sorted runs of records on the disk, which shuffle more records than fit into memory.

Every record gets a random 64-bit key. A run is a file of records, sorted by key. All runs merged by
key are a uniform shuffle of all records, of which only a slice of the keys is in memory.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.array_files import save_array

MERGE_BYTES = 256 << 20  # of records in memory at a time


def write_run(path: str, keys: Sequence[int], records: Sequence[bytes]) -> None:
    """Writes a run: `path` with the records, `path`.keys.npy and `path`.ends.npy.

    `keys` are random numbers below 2^64, one for each record.
    """
    keys = np.asarray(keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    ends = np.cumsum([len(records[index]) for index in order], dtype=np.int64)
    with open(path, "wb") as file:
        file.writelines(records[index] for index in order)
    save_array(path + ".keys.npy", keys[order])
    save_array(path + ".ends.npy", ends)


def merge_runs(paths: Sequence[str], merge_bytes: int = MERGE_BYTES) -> Iterator[bytes]:
    """Yields the records of all runs in the order of their keys, or of `paths` for equal keys.

    About `merge_bytes` are in memory at a time. The order does not depend on that.
    """
    total = sum(os.path.getsize(path) for path in paths)
    slices = max(1, -(-total // merge_bytes))
    for index in range(slices):
        keys: list[np.ndarray] = []
        records: list[bytes] = []
        for path in paths:
            low, high = ((2**64 * edge) // slices for edge in (index, index + 1))
            part_keys, part = _read_slice(path, low, high)
            keys.append(part_keys)
            records += part
        for place in np.argsort(np.concatenate(keys), kind="stable"):
            yield records[place]


def _read_slice(path: str, low: int, high: int) -> tuple[np.ndarray, list[bytes]]:
    """Returns the keys in [low, high) and their records."""
    all_keys = np.load(path + ".keys.npy", mmap_mode="r")
    first = np.searchsorted(all_keys, np.uint64(low))
    end = len(all_keys) if high == 2**64 else np.searchsorted(all_keys, np.uint64(high))
    if first == end:
        return np.zeros([0], np.uint64), []
    ends = np.load(path + ".ends.npy", mmap_mode="r")[first:end]
    start = int(np.load(path + ".ends.npy", mmap_mode="r")[first - 1]) if first else 0
    with open(path, "rb") as file:
        file.seek(start)
        content = file.read(int(ends[-1]) - start)
    borders = [0, *(int(edge) - start for edge in ends)]
    return np.array(all_keys[first:end]), [content[a:b] for a, b in zip(borders, borders[1:])]
