"""Writes a `VectorIndex` part by part, so that a corpus need not fit in memory."""

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.base.array_files import checksum, save_array
from bert_tf.base.files import atomic_path
from bert_tf.base.json_files import write_json
from bert_tf.base.vectors import as_finite_floats, as_matrix
from bert_tf.errors import UserError, require_one_of, user_error
from bert_tf.search.index_files import (
    CHECKSUMS,
    DTYPES,
    INDEX,
    INDEX_FORMAT,
    INDEX_SIMILARITIES,
    ITEMS,
    MOST_DIMENSIONS,
    OFFSETS,
    RANGES,
    VECTORS,
    array_header,
    item_line,
    require_index_or_nothing,
    require_ranges,
    stored_size,
)
from bert_tf.search.quantized_vectors import quantize_vectors, vector_ranges

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
