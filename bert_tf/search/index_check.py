"""Checks the content of a `VectorIndex` when it is opened: checksums, and what a search relies on.

The files are read once, block by block. Checksums find damage; the values are checked as well,
because whoever changes a file can change its checksum too.
"""

import os
import zlib
from collections.abc import Iterator

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.base.progress import progress_bar
from bert_tf.errors import DataError, UserError
from bert_tf.search.index_files import CHECKSUMS, ITEMS, OFFSETS, RANGES, VECTORS
from bert_tf.search.quantized_vectors import checked_ranges, decoded_bytes

_BLOCK_BYTES = 16 * 2**20
# How far the length of a vector of "cosine" may be from 1. float16 rounds by at most 2^-11.
TOLERANCE = 1e-3
_SECONDS_BEFORE_PROGRESS = 3.0


def check_index(index, content: dict, items: int, offsets: np.ndarray) -> None:
    """Reads the files of an index and compares them with its `index.json`.

    Args:
        index: The `VectorIndex`.
        content: What `read_index` returns.
        items: The descriptor of items.jsonl.
        offsets: Its offsets, int64 `[n + 1]`.

    Raises:
        DataError: If a file was changed, a value is not finite, a vector of "cosine" has another
            length than 1, or an offset is not after the one before.
    """
    files = {OFFSETS: (_blocks(offsets), _require_increasing)}
    if index.ranges is not None:
        files[RANGES] = (iter([index.ranges]), lambda ranges: None)
    files[VECTORS] = (_blocks(index.vectors), lambda rows: _require_valid(index, rows))
    files[ITEMS] = (_parts_of(items), lambda part: None)
    size = offsets.nbytes + index.vectors.nbytes + int(offsets[-1])
    delay = _SECONDS_BEFORE_PROGRESS
    with progress_bar(
        None, "checking the index", total=size, unit="B", unit_scale=True, delay=delay
    ) as bar:
        for name, (blocks, check) in files.items():
            found = 0
            try:
                for block in blocks:
                    found = zlib.crc32(block, found)
                    check(block)
                    bar.update(memoryview(block).nbytes)
            except ValueError as error:
                expected = "be a file of this index"
                received = f"{error}. Build the index again."
                raise data_error(os.path.join(index.path, name), expected, received) from None
            if found != content[CHECKSUMS].get(name):
                raise DataError(
                    f"{os.path.join(index.path, name)} must have the checksum in index.json. "
                    "Received: another checksum. The file is damaged; copy it or build the index "
                    "again."
                )


def require_ranges(ranges: np.ndarray, size: int, similarity: str) -> np.ndarray:
    """Returns the ranges of int8 codes as float32 `[2, size]`.

    Raises:
        UserError: If they are not the ranges of vectors, or for "cosine" of vectors of length 1.
    """
    ranges = checked_ranges(ranges, size)
    if similarity == "cosine" and np.abs(ranges).max() > 1 + TOLERANCE:
        raise UserError(
            "`ranges` must be those of vectors of length 1 for the similarity 'cosine', within "
            f"[-1, 1]. Received: [{ranges.min():g}, {ranges.max():g}]. Normalize the sample before "
            "`vector_ranges`, or pass similarity='dot'."
        )
    return ranges


def _blocks(array) -> Iterator[np.ndarray]:
    """Yields the rows of an array, some at a time, in memory."""
    rows = max(1, _BLOCK_BYTES // array[:1].nbytes)
    for start in range(0, len(array), rows):
        yield np.array(array[start : start + rows])


def _parts_of(descriptor) -> Iterator[bytes]:
    position = 0
    while part := os.pread(descriptor, _BLOCK_BYTES, position):
        position += len(part)
        yield part


def _require_increasing(offsets):
    if (np.diff(offsets) < 1).any():
        raise ValueError("offsets that do not increase")


def _require_valid(index, rows):
    """Raises a ValueError if a search on the rows could return scores that are none."""
    if index.precision == "binary":
        left_over = 8 * rows.shape[1] - index.vector_size
        if (rows[:, -1] & ((1 << left_over) - 1)).any():
            raise ValueError("bits after the last dimension that are not 0")
        return
    least, most = 1 - TOLERANCE, 1 + TOLERANCE
    if index.precision == "int8":
        # A code stands for the middle of its step, and a value outside of the range for its end.
        ranges = index.ranges.astype(np.float64)
        ends = np.abs(np.clip(0, *ranges))
        least, most = 0, np.hypot(most, min(np.linalg.norm(ends), most))
        most += np.linalg.norm(ranges[1] - ranges[0]) / 255
        rows = decoded_bytes(rows, "int8", index.ranges)
    rows = rows.astype(np.float32, copy=False)
    if not np.isfinite(rows).all():
        raise ValueError("NaN or infinity in a vector")
    if index.similarity == "cosine":
        with np.errstate(over="ignore"):
            lengths = np.linalg.norm(rows, axis=1)
        is_wrong = (lengths > most) | ((lengths < least) & (lengths > 0))
        if is_wrong.any():
            raise ValueError(f"a vector of length {lengths[is_wrong][0]:g} for 'cosine'")
