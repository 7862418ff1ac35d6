"""The files of a `VectorIndex`: what they contain, and how they are checked.

index.json      the sizes, the precision, the similarity and the checksums of the other files
vectors.npy     the vectors or their codes, one row per item
ranges.npy      for int8: float32 [2, D], the ranges of the codes
items.jsonl     {"id": ..., "text": ...} for each row
offsets.npy     int64 [n + 1], where each line of items.jsonl begins, and its end

A checksum is the CRC-32 of all lines, or of the numbers of an array without the header of its file.
When an index is opened, its files are read once, block by block. Checksums find damage; the values
on which a search relies are checked as well, because whoever changes a file can change its checksum
too.
"""

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.base.json_files import parse_json, read_json
from bert_tf.base.json_schema import SCALAR, integer, may_lack, object_of, one_of, optional, text
from bert_tf.base.json_values import as_json
from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import require_regular
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.search.quantized_vectors import checked_ranges, decoded_bytes

INDEX_FORMAT = "bert_tf vector index 2"
INDEX, VECTORS, RANGES = "index.json", "vectors.npy", "ranges.npy"
ITEMS, OFFSETS = "items.jsonl", "offsets.npy"
_NAMES = {INDEX, VECTORS, RANGES, ITEMS, OFFSETS}
# How a vector is stored, by precision.
DTYPES = {"float32": np.float32, "float16": np.float16, "int8": np.int8, "binary": np.uint8}
INDEX_SIMILARITIES = ("cosine", "dot")
# The vectors of models have some thousand dimensions. A search holds some rows of floats in memory,
# whatever the size of the file is.
MOST_DIMENSIONS = 2**20
CHECKSUMS = "crc32"
_MOST_ROWS = 2**48
_CHECKSUM = integer(most=2**32 - 1)
_INDEX_SCHEMA = object_of(
    {
        "format": one_of(INDEX_FORMAT),
        "num_rows": integer(1, _MOST_ROWS),
        "vector_size": integer(1, MOST_DIMENSIONS),
        "precision": one_of(*DTYPES),
        "similarity": one_of(*INDEX_SIMILARITIES),
        "model": optional(text()),
        CHECKSUMS: object_of(
            {**dict.fromkeys((VECTORS, ITEMS, OFFSETS), _CHECKSUM), RANGES: may_lack(_CHECKSUM)},
            only=True,
        ),
    },
    only=True,
)
_MOST_CHARACTERS = 16 * 2**20
_ITEM_SCHEMA = object_of(
    {"id": optional(SCALAR), "text": optional(text(_MOST_CHARACTERS))}, only=True
)
_HEADER = 128  # bytes


def stored_size(vector_size: int, precision: str) -> int:
    """Returns the number of columns of vectors.npy."""
    return -(-vector_size // 8) if precision == "binary" else vector_size


def read_index(path: str | os.PathLike) -> dict[str, Any]:
    """Returns the content of index.json.

    Raises `DataError` if the directory is not an index, or is one of another version.
    """
    return read_json(os.path.join(path, INDEX), _INDEX_SCHEMA, DataError)


def require_index_or_nothing(path: str | os.PathLike) -> None:
    """Raises `UserError` if a new index would replace something that is not an index."""
    if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
        return
    try:
        read_index(path)
    except DataError as error:
        received = error
    else:
        other = sorted(set(os.listdir(path)) - _NAMES)
        received = ", ".join(other[:5])
        if not other:
            return
    expected = "be a new directory or an index, which is replaced"
    raise user_error(path, expected, f"files that would be lost ({received})")


def open_array(path: str, shape: tuple[int, ...], dtype: np.dtype) -> np.memmap:
    """Opens a `.npy` file by memory map.

    Raises `DataError` if it is not the file of an array of this shape and type.
    """
    try:
        require_regular(path)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # whatever Python's tokenizer and NumPy raise for a wrong header
        received = f"{type(error).__name__}: {error}"[:500]
        raise DataError(f"{path} must be a .npy file. Received: {received}.") from None
    if not isinstance(array, np.memmap):  # an .npz archive
        raise DataError(f"{path} must be a .npy file. Received: an archive.")
    if (array.shape, array.dtype) != (shape, dtype) or not array.flags.c_contiguous:
        expected = f"be an array of {np.dtype(dtype)} {list(shape)}, as {INDEX} says"
        received = f"{array.dtype} {list(array.shape)}. Build the index again."
        raise data_error(path, expected, received)
    size = array.offset + array.nbytes
    if os.path.getsize(path) != size:
        expected = f"be a file of {size} bytes"
        raise data_error(path, expected, f"{os.path.getsize(path)} bytes. Build the index again.")
    return array


def array_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Returns the first 128 bytes of a `.npy` file, whatever the shape.

    So a file can be written row by row, and its header when the number of rows is known.

    Reference: numpy.lib.format, version 1.0.
    """
    content = repr(
        {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": tuple(map(int, shape))}
    ).encode("latin1")
    start = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
    return start + content.ljust(_HEADER - len(start) - 1) + b"\n"


def item_line(item: dict[str, Any]) -> bytes:
    """Returns the line of an item in items.jsonl.

    Raises `UserError` if `parse_item` would refuse it, or it is not JSON in UTF-8.
    """
    try:
        values = {name: as_json(value) for name, value in item.items()}
        line = (json.dumps(values, ensure_ascii=False) + "\n").encode("utf-8")
        parse_item(line, ITEMS)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            "`ids` must be strings or finite numbers, and `texts` strings of at most "
            f"{_MOST_CHARACTERS:,} characters. Received: {str(item)[:200]} ({error})"
        ) from None
    return line


def parse_item(line: bytes, path: str) -> dict[str, Any]:
    """Returns the item of a line. Raises `DataError` if the line is damaged."""
    return parse_json(line, path, _ITEM_SCHEMA, DataError)


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
