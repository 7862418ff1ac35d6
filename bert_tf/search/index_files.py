"""The files of a `VectorIndex`: what they contain, how they are checked, and how written.

index.json      the sizes, the precision, the similarity and the checksums of the other files
vectors.npy     the vectors or their codes, one row per item
ranges.npy      for int8: float32 [2, D], the ranges of the codes
items.jsonl     {"id": ..., "text": ...} for each row
offsets.npy     int64 [n + 1], where each line of items.jsonl begins, and its end

A checksum is the CRC-32 of all lines, or of the numbers of an array without the header of its file.
When an index is opened, its files are read once, block by block. Checksums find damage; the values
on which a search relies are checked as well, because whoever changes a file can change its checksum
too. They are written part by part, so that a corpus need not fit in memory.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from bert_tf.base.array_files import checksum, save_array
from bert_tf.base.file_errors import data_error
from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import parse_json, read_json, write_json
from bert_tf.base.json_schema import SCALAR, integer, may_lack, object_of, one_of, optional, text
from bert_tf.base.json_values import as_json
from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import require_regular
from bert_tf.base.vectors import as_finite_floats, as_matrix
from bert_tf.errors import DataError, UserError, require_one_of, user_error
from bert_tf.search.quantized_vectors import (
    checked_ranges,
    decoded_bytes,
    quantize_vectors,
    vector_ranges,
)

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
    """Reads the files of a `VectorIndex` and compares them with `content`, its index.json.

    `items` is the descriptor of items.jsonl, `offsets` are int64 `[n + 1]`. Raises `DataError` if a
    file was changed, a value is not finite, a vector of "cosine" has another length than 1, or an
    offset is not after the one before.
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
        # A code means the middle of its step, and a value outside of the range means its end.
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


# The first vectors say in which ranges int8 has its codes.
CALIBRATION_ROWS = 20_000
_FLOAT16 = np.finfo(np.float16).max


class IndexWriter:
    """What `open_index_writer` yields: an index whose rows are added part by part."""

    def __init__(self, directory, precision, similarity, ranges, model):
        self._directory = directory
        self._precision = precision
        self._similarity = similarity
        self._ranges = ranges
        self._model = model
        self._vector_size = None
        self._waiting = []  # vectors before the ranges are known
        self._num_rows = 0
        names = (VECTORS, ITEMS, OFFSETS)
        self._files = {name: open(os.path.join(directory, name), "wb") for name in names}
        self._checksums = dict.fromkeys(names, 0)
        for name in (VECTORS, OFFSETS):
            self._files[name].write(array_header((0,), np.int64))  # replaced at the end
        self._offset = 0

    def add(
        self,
        vectors: np.ndarray,
        texts: Sequence[str] | None = None,
        ids: Sequence[str | int] | None = None,
    ) -> None:
        """Adds rows: all of them, or none if there is an error.

        Args:
            vectors: Floats `[n, D]`.
            texts: Their n texts, which a search returns.
            ids: Their n ids, strings or finite numbers.

        Raises:
            UserError: If the sizes differ, a vector is not finite, or is not in float16, `ranges`
                are not those of D dimensions, or a text or an id has another type or is too long.
        """
        vectors = as_finite_floats(
            as_matrix(vectors, "vectors"), self._similarity == "cosine", "vectors"
        )
        size = self._vector_size or vectors.shape[1]
        given = (("id", ids), ("text", texts))
        # A column of pandas would be indexed by its labels.
        columns = {name: list(column) for name, column in given if column is not None}
        if size > MOST_DIMENSIONS:
            expected = f"have at most {MOST_DIMENSIONS} dimensions"
            raise user_error("`vectors`", expected, f"vectors.shape={vectors.shape}")
        if vectors.shape[1] != size or any(
            len(column) != len(vectors) for column in columns.values()
        ):
            raise UserError(
                f"`vectors` must be [n, {size}], with n texts and n ids. Received: "
                f"vectors.shape={vectors.shape}, "
                + ", ".join(f"{len(column)} {name}s" for name, column in columns.items())
            )
        lines = [
            item_line({name: column[row] for name, column in columns.items()})
            for row in range(len(vectors))
        ]
        if self._precision == "int8" and self._ranges is not None:
            self._ranges = require_ranges(self._ranges, size, self._similarity)
        is_waiting = self._precision == "int8" and self._ranges is None
        content = b"" if is_waiting else self._content(vectors)
        # Nothing was written before, so a refused call leaves no trace.
        self._vector_size = size
        ends = self._offset + np.cumsum([0, *map(len, lines)], dtype=np.int64)
        self._write(OFFSETS, ends[:-1].tobytes())
        self._offset = int(ends[-1])
        self._write(ITEMS, b"".join(lines))
        self._write(VECTORS, content)
        self._num_rows += len(vectors)
        if is_waiting:
            self._waiting.append(vectors)
            if sum(map(len, self._waiting)) >= CALIBRATION_ROWS:
                self._calibrate()

    def _write(self, name, content):
        self._files[name].write(content)
        self._checksums[name] = zlib.crc32(content, self._checksums[name])

    def _calibrate(self):
        vectors, self._waiting = np.concatenate(self._waiting), []
        self._ranges = vector_ranges(vectors)
        self._write(VECTORS, self._content(vectors))

    def _content(self, vectors):
        """Returns the bytes of rows in vectors.npy."""
        if self._precision == "int8":
            vectors = quantize_vectors(vectors, "int8", self._ranges)
        elif self._precision == "binary":
            vectors = quantize_vectors(vectors, "ubinary")
        with np.errstate(over="ignore"):
            vectors = vectors.astype(DTYPES[self._precision])
        if self._precision == "float16" and not np.isfinite(vectors).all():
            expected = f"be in [-{_FLOAT16:g}, {_FLOAT16:g}] for the precision 'float16'"
            raise user_error("`vectors`", expected, "larger values")
        return vectors.tobytes()

    def _finish(self):
        if not self._num_rows:
            raise UserError("The index must have at least one row. Received: no vectors.")
        if self._waiting:
            self._calibrate()
        self._write(OFFSETS, np.int64(self._offset).tobytes())
        shape = (self._num_rows, stored_size(self._vector_size, self._precision))
        headers = {
            VECTORS: array_header(shape, DTYPES[self._precision]),
            OFFSETS: array_header((self._num_rows + 1,), np.int64),
        }
        for name, header in headers.items():
            self._files[name].seek(0)
            self._files[name].write(header)
        if self._precision == "int8":
            self._checksums[RANGES] = checksum(self._ranges)
            save_array(os.path.join(self._directory, RANGES), self._ranges)
        content = {
            "format": INDEX_FORMAT,
            "num_rows": self._num_rows,
            "vector_size": self._vector_size,
            "precision": self._precision,
            "similarity": self._similarity,
            "model": self._model,
            CHECKSUMS: self._checksums,
        }
        write_json(os.path.join(self._directory, INDEX), content)

    def _close(self):
        for file in self._files.values():
            file.close()


@contextlib.contextmanager
def open_index_writer(
    path: str | os.PathLike,
    precision: str = "float32",
    similarity: str = "cosine",
    ranges: np.ndarray | None = None,
    model: str | None = None,
) -> Iterator[IndexWriter]:
    """Opens a new index, which replaces the directory `path` when the block ends without an error.

    Args:
        path: The directory.
        precision: "float32"; "float16", half the size; "int8", a quarter; "binary", one bit per
            dimension.
        similarity: "cosine" stores vectors of length 1; "dot" stores them as they are.
        ranges: For "int8", what `vector_ranges` returns for a sample of the vectors, of length 1
            for "cosine". None takes the first 20,000 vectors as the sample.
        model: A note on where the vectors come from, such as the model's directory.

    Raises:
        UserError: If an argument is unknown, no rows were added, or `path` has other files.

    Example:
        >>> with open_index_writer("news/", precision="binary") as writer:
        ...     writer.add(np.array([[0.1, -0.2], [0.3, 0.4]]), texts=["one", "two"])
        >>> bert_tf.search.VectorIndex("news/").items([1])
        [{'text': 'two'}]
    """
    require_one_of("precision", precision, tuple(DTYPES))
    require_one_of("similarity", similarity, INDEX_SIMILARITIES)
    require_index_or_nothing(path)
    with atomic_path(path) as new:
        os.mkdir(new)
        writer = IndexWriter(new, precision, similarity, ranges, model)
        try:
            yield writer
            writer._finish()
        finally:
            writer._close()
