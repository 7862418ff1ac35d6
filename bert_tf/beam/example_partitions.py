"""Shuffles more records than fit into memory, in parallel and through files.

Each pass over a chunk writes its records as a run, sorted by random keys. The keys are divided into
equal partitions, and a partition of all runs fits into memory: it is sorted by key. All partitions
in order are the order of `create_data.merge_runs`, so record n of it goes to the output file n
modulo their number, as the local tool does it.
"""

import os
import tempfile
from collections.abc import Sequence

import numpy as np

from bert_tf.beam.file_access import open_file, read_segment, write_segments

PARTITION_BYTES = 128 << 20  # of records in memory at a time
# An example takes about 6 bytes per token, a token 4 or 5 bytes of text, and random next segments
# use text twice. Too high an estimate makes partitions smaller.
RECORD_BYTES_PER_TEXT_BYTE = 3
_FRAME_BYTES = 16  # of a TFRecord: its length and two checksums; record_writer.h of TensorFlow
_ITEM = np.dtype([("key", "<u8"), ("size", "<i8")])


def num_partitions(text_bytes: int, dupe_factor: int, partition_bytes: int) -> int:
    """Returns the number of partitions of the records of `dupe_factor` passes over the text."""
    return max(1, -(-text_bytes * dupe_factor * RECORD_BYTES_PER_TEXT_BYTE // partition_bytes))


def write_partitioned_run(
    path: str, keys: Sequence[int], records: Sequence[bytes], partitions: int
) -> None:
    """Writes a run, one segment per partition; `keys` are below 2^64."""
    keys = np.asarray(keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    edges = [2**64 * index // partitions for index in range(1, partitions)]
    splits = [0, *np.searchsorted(keys[order], np.array(edges, np.uint64)), len(keys)]
    segments = []
    for start, end in zip(splits, splits[1:]):
        chosen = order[start:end]
        items = np.empty(len(chosen), _ITEM)
        items["key"] = keys[chosen]
        items["size"] = [len(records[index]) for index in chosen]
        count = np.array([len(chosen)], "<i8")
        segments.append([count.tobytes(), items.tobytes(), *(records[i] for i in chosen)])
    write_segments(path, segments)


def count_records(path: str, partitions: int) -> np.ndarray:
    """Returns the number of records in each partition of a run, int64 `[partitions]`."""
    counts = np.empty(partitions, np.int64)
    with open_file(path) as file:
        table = np.frombuffer(file.read(8 * partitions), "<i8")
        for partition, start in enumerate(table.tolist()):
            file.seek(start)
            counts[partition] = np.frombuffer(file.read(8), "<i8")[0]
    return counts


def merge_partition(paths: Sequence[str], partition: int) -> list[bytes]:
    """Returns the records of a partition of all runs, sorted by key, or in the order of `paths`."""
    keys: list[np.ndarray] = []
    records: list[bytes] = []
    for path in paths:
        content = read_segment(path, partition)
        count = int(np.frombuffer(content, "<i8", 1)[0])
        items = np.frombuffer(content, _ITEM, count, offset=8)
        splits = np.cumsum([8 + items.nbytes, *items["size"]]).tolist()
        records += [content[start:end] for start, end in zip(splits, splits[1:])]
        keys.append(items["key"])
    return [records[place] for place in np.argsort(np.concatenate(keys), kind="stable")]


def write_shares(path: str, records: Sequence[bytes], first: int, num_files: int) -> None:
    """Writes each output file's share of a partition as TFRecords, one segment per output file.

    Args:
        path: The file to write.
        records: The records of the partition, in order.
        first: The number of its first record among the records of all partitions.
        num_files: The number of output files.
    """
    import tensorflow as tf

    shares = [records[(number - first) % num_files :: num_files] for number in range(num_files)]
    with tempfile.TemporaryDirectory() as folder:
        framed = os.path.join(folder, "records")
        with tf.io.TFRecordWriter(framed) as writer:
            for share in shares:
                for record in share:
                    writer.write(record)
        with open_file(framed) as file:
            write_segments(path, [[file.read(_size(share))] for share in shares])


def _size(share: Sequence[bytes]) -> int:
    return sum(len(record) + _FRAME_BYTES for record in share)
