"""Writes a `VectorIndex` part by part, so that a corpus need not fit in memory."""

import contextlib
import os
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.array_files import save_array
from bert_tf.errors import UserError, require_one_of
from bert_tf.files import atomic_path
from bert_tf.json_files import write_json
from bert_tf.search.best_rows import finite_rows, matrix
from bert_tf.search.index_files import (
    DTYPES,
    FORMAT,
    INDEX,
    ITEMS,
    OFFSETS,
    RANGES,
    SIMILARITIES,
    VECTORS,
    array_header,
    item_line,
    require_index_or_nothing,
    stored_size,
)
from bert_tf.search.quantized_vectors import quantize_vectors, vector_ranges

# The first vectors say in which ranges int8 has its codes.
CALIBRATION_ROWS = 20_000


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
        self._vectors = open(os.path.join(directory, VECTORS), "wb")
        self._items = open(os.path.join(directory, ITEMS), "wb")
        self._offsets = open(os.path.join(directory, OFFSETS), "wb")
        for file in (self._vectors, self._offsets):
            file.write(array_header((0,), np.int64))  # replaced at the end
        self._offset = 0

    def add(
        self,
        vectors: np.ndarray,
        texts: Sequence[str] | None = None,
        ids: Sequence[str | int] | None = None,
    ) -> None:
        """Adds rows.

        Args:
            vectors: Floats `[n, D]`.
            texts: Their n texts, which a search returns.
            ids: Their n ids, strings or numbers.

        Raises:
            UserError: If the sizes differ, or a vector is not finite.
        """
        vectors = finite_rows(matrix(vectors, "vectors"), self._similarity == "cosine", "vectors")
        self._vector_size = self._vector_size or vectors.shape[1]
        given = (("id", ids), ("text", texts))
        # A column of pandas would be indexed by its labels.
        columns = {name: list(column) for name, column in given if column is not None}
        if vectors.shape[1] != self._vector_size or any(
            len(column) != len(vectors) for column in columns.values()
        ):
            raise UserError(
                f"`vectors` must be [n, {self._vector_size}], with n texts and n ids. Received: "
                f"vectors.shape={vectors.shape}, "
                + ", ".join(f"{len(column)} {name}s" for name, column in columns.items())
            )
        for row in range(len(vectors)):
            line = item_line({name: column[row] for name, column in columns.items()})
            self._offsets.write(np.int64(self._offset).tobytes())
            self._items.write(line)
            self._offset += len(line)
        self._num_rows += len(vectors)
        if self._precision == "int8" and self._ranges is None:
            self._waiting.append(vectors)
            if sum(map(len, self._waiting)) >= CALIBRATION_ROWS:
                self._calibrate()
        else:
            self._write(vectors)

    def _calibrate(self):
        vectors, self._waiting = np.concatenate(self._waiting), []
        self._ranges = vector_ranges(vectors)
        self._write(vectors)

    def _write(self, vectors):
        if self._precision == "int8":
            vectors = quantize_vectors(vectors, "int8", self._ranges)
        elif self._precision == "binary":
            vectors = quantize_vectors(vectors, "ubinary")
        self._vectors.write(vectors.astype(DTYPES[self._precision]).tobytes())

    def _finish(self):
        if not self._num_rows:
            raise UserError("The index must have at least one row. Received: no vectors.")
        if self._waiting:
            self._calibrate()
        self._offsets.write(np.int64(self._offset).tobytes())
        shape = (self._num_rows, stored_size(self._vector_size, self._precision))
        self._vectors.seek(0)
        self._vectors.write(array_header(shape, DTYPES[self._precision]))
        self._offsets.seek(0)
        self._offsets.write(array_header((self._num_rows + 1,), np.int64))
        if self._precision == "int8":
            save_array(os.path.join(self._directory, RANGES), self._ranges)
        content = {
            "format": FORMAT,
            "num_rows": self._num_rows,
            "vector_size": self._vector_size,
            "precision": self._precision,
            "similarity": self._similarity,
            "model": self._model,
        }
        write_json(os.path.join(self._directory, INDEX), content)

    def _close(self):
        for file in (self._vectors, self._items, self._offsets):
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
            for "cosine". None: the first 20,000 vectors are the sample.
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
    require_one_of("similarity", similarity, SIMILARITIES)
    require_index_or_nothing(path)
    with atomic_path(path) as new:
        os.mkdir(new)
        writer = IndexWriter(new, precision, similarity, ranges, model)
        try:
            yield writer
            writer._finish()
        finally:
            writer._close()
