"""An index on disk: vectors, texts and ids of a corpus, opened by memory map."""

import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.base.files import recover
from bert_tf.base.json_files import MOST_BYTES
from bert_tf.base.optional_packages import require_package
from bert_tf.base.regular_files import open_descriptor
from bert_tf.base.vectors import as_array, as_finite_floats, as_matrix
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.search.exact_search import top_k
from bert_tf.search.index_files import (
    DTYPES,
    ITEMS,
    OFFSETS,
    RANGES,
    VECTORS,
    check_index,
    open_array,
    open_index_writer,
    parse_item,
    read_index,
    require_ranges,
    stored_size,
)
from bert_tf.search.quantized_vectors import quantized_top_k

_BLOCK_ROWS = 65_536
_HNSW_LINKS = 32  # per vector; faiss's own examples


class VectorIndex:
    """A corpus that can be searched without being read into memory.

    If the directory is replaced by a new index, an open one goes on with the files that it had.

    Args:
        path: A directory that `VectorIndex.build`, `open_index_writer` or `bert-tf build_index` has
            written.
        verify: Whether the files are read once to compare their checksums and to check the
            vectors, which takes about as long as a search. False: for an index that you trust.

    Attributes:
        path: The directory.
        vectors: What is stored, `[n, D]`, or packed bits `[n, ceil(D / 8)]`.
        vector_size: D.
        precision: "float32", "float16", "int8" or "binary".
        similarity: "cosine" or "dot".
        ranges: For "int8", float32 `[2, D]`; otherwise None.
        model: The note on where the vectors come from, or None.

    Raises:
        DataError: If the directory is not an index, or a file of it is missing or damaged.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("minilm/")
        >>> corpus = ["A dog barks.", "Rates rose.", "The cat sleeps."]
        >>> index = VectorIndex.build("pets/", encoder.encode(corpus), corpus, precision="int8")
        >>> scores, rows = index.search(encoder.encode(["a barking dog"]), k=2)
        >>> [item["text"] for item in index.items(rows[0])]
        ['A dog barks.', 'The cat sleeps.']
    """

    def __init__(self, path: str | os.PathLike, verify: bool = True):
        self.path = os.fspath(path)
        self._verify = verify
        while True:  # another process may replace the index while its files are opened
            generation = self._generation()
            try:
                self._open()
            except DataError:
                if generation == self._generation():
                    raise
            else:
                if generation == self._generation():
                    return

    def _generation(self):
        """Returns what is different in each index that is written to the path."""
        recover(os.path.dirname(os.path.abspath(self.path)))
        try:
            found = os.stat(self.path)
        except (OSError, ValueError):  # a ValueError for a NUL character
            return None
        return found.st_dev, found.st_ino, found.st_mtime_ns

    def _open(self):
        content = read_index(self.path)
        self.vector_size = content["vector_size"]
        self.precision = content["precision"]
        self.similarity = content["similarity"]
        self.model = content.get("model")
        count = content["num_rows"]
        shape = (count, stored_size(self.vector_size, self.precision))
        self.vectors = open_array(self._file(VECTORS), shape, np.dtype(DTYPES[self.precision]))
        self.ranges = None
        if self.precision == "int8":
            ranges = open_array(self._file(RANGES), (2, self.vector_size), np.dtype(np.float32))
            try:
                self.ranges = require_ranges(np.array(ranges), self.vector_size, self.similarity)
            except UserError as error:
                raise DataError(f"{self._file(RANGES)}: {error} Build the index again.") from None
        self._offsets = open_array(self._file(OFFSETS), (count + 1,), np.dtype(np.int64))
        try:
            # Not opened again later, when the path may have another index.
            self._items = open_descriptor(self._file(ITEMS))
            weakref.finalize(self, os.close, self._items)
            size = os.fstat(self._items).st_size
        except OSError as error:
            expected = "be the items of the index"
            raise data_error(self._file(ITEMS), expected, error.strerror) from None
        if self._offsets[0] != 0 or self._offsets[-1] != size:
            raise self._damaged_items(f"a file of {size} bytes")
        if self._verify:
            check_index(self, content, self._items, self._offsets)

    def __reduce__(self):
        return type(self), (self.path, self._verify)

    def _file(self, name):
        return os.path.join(self.path, name)

    def _damaged_items(self, received):
        return DataError(
            f"{self._file(ITEMS)} must have a line for each row, as {OFFSETS} says. Received: "
            f"{received}. Build the index again."
        )

    @classmethod
    def build(
        cls,
        path: str | os.PathLike,
        vectors: np.ndarray,
        texts: Sequence[str] | None = None,
        ids: Sequence[str | int] | None = None,
        **options,
    ) -> "VectorIndex":
        """Writes an index and opens it.

        Args:
            path: The directory, which is replaced atomically.
            vectors: Floats `[n, D]`; the matrix can be a `np.memmap`.
            texts: n texts, or None.
            ids: n strings or numbers, or None.
            **options: See `open_index_writer`.

        Raises:
            UserError: If the sizes differ, there are no vectors, or one is not finite.
        """
        vectors = as_matrix(vectors, "vectors")
        for name, column in (("texts", texts), ("ids", ids)):
            if column is not None and len(column) != len(vectors):
                expected = f"be as many as `vectors`, {len(vectors)}"
                raise user_error(f"`{name}`", expected, f"len({name})={len(column)}")
        texts, ids = (None if column is None else list(column) for column in (texts, ids))
        with open_index_writer(path, **options) as writer:
            for start in range(0, len(vectors), _BLOCK_ROWS):
                part = slice(start, start + _BLOCK_ROWS)
                columns = (None if column is None else column[part] for column in (texts, ids))
                writer.add(vectors[part], *columns)
        return cls(path, verify=False)  # just written

    def __len__(self) -> int:
        return len(self.vectors)

    def search(
        self, query_vectors: np.ndarray, k: int, rescore_multiplier: int = 10
    ) -> tuple[np.ndarray, np.ndarray]:
        """Finds the `k` best rows for each query.

        The search is exact; on int8 and bits it is that of `quantized_top_k`.

        Args:
            query_vectors: Floats `[Q, D]`, or one query `[D]`.
            k: The number of rows to find.
            rescore_multiplier: For "int8" and "binary", how many times `k` rows are scored again
                with the float queries; 0: none.

        Returns:
            Scores and row numbers int64, both `[Q, min(k, n)]`, the best row first; for one query,
            without Q. The scores are as in `top_k` and `quantized_top_k`.

        Raises:
            UserError: If an argument has another shape or range, or a query is not finite.
        """
        queries = np.asarray(as_array(query_vectors, "query_vectors"), np.float32)
        if queries.ndim == 1:
            scores, rows = self.search(queries[None], k, rescore_multiplier)
            return scores[0], rows[0]
        if queries.ndim != 2 or queries.shape[1] != self.vector_size:
            raise UserError(
                f"`query_vectors` must be [Q, {self.vector_size}], as the vectors of the index. "
                f"Received: query_vectors.shape={queries.shape}. Encode the queries with the model "
                f"that encoded the corpus{f', {self.model}' if self.model else ''}."
            )
        queries = as_finite_floats(queries, self.similarity == "cosine", "query_vectors")
        if self.precision in ("float32", "float16"):
            return top_k(queries, self.vectors, k, "dot")
        precision = "ubinary" if self.precision == "binary" else self.precision
        return quantized_top_k(queries, self.vectors, k, precision, self.ranges, rescore_multiplier)

    def items(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Returns the ids and texts of rows, as far as they were given: `{"id": …, "text": …}`.

        Raises:
            UserError: If there is no such row.
            DataError: If items.jsonl is damaged.
        """
        found = []
        for row in map(int, rows):
            if not 0 <= row < len(self):
                raise UserError(f"`rows` must be in [0, {len(self)}). Received: {row}.")
            start, end = map(int, self._offsets[row : row + 2])
            if not 0 <= start < end <= min(self._offsets[-1], start + MOST_BYTES):
                raise self._damaged_items(f"row {row} from byte {start} to {end}")
            line = os.pread(self._items, end - start, start)
            found.append(parse_item(line, f"{self._file(ITEMS)}, row {row}"))
        return found

    def to_faiss(self, exact: bool = False):
        """Returns an index of faiss with the same rows, for approximate search in memory.

        Args:
            exact: Whether every vector is compared; False: by a graph of neighbors (HNSW).

        Returns:
            A faiss index: of the inner product for floats (queries of length 1 for "cosine"), of
            the Hamming distance for bits. `search` of it returns scores and row numbers.

        Raises:
            UserError: If faiss is not installed, or the precision is "int8".
        """
        faiss = require_package("faiss", "to_faiss()")
        if self.precision == "int8":
            expected = "be 'float32', 'float16' or 'binary' for faiss"
            raise user_error("`precision` of the index", expected, "'int8'. Call `to_usearch()`.")
        if self.precision == "binary":
            size = 8 * self.vectors.shape[1]
            made = (
                faiss.IndexBinaryFlat(size) if exact else faiss.IndexBinaryHNSW(size, _HNSW_LINKS)
            )
        elif exact:
            made = faiss.IndexFlatIP(self.vector_size)
        else:
            made = faiss.IndexHNSWFlat(self.vector_size, _HNSW_LINKS, faiss.METRIC_INNER_PRODUCT)
        dtype = np.uint8 if self.precision == "binary" else np.float32
        for start in range(0, len(self), _BLOCK_ROWS):
            made.add(np.ascontiguousarray(self.vectors[start : start + _BLOCK_ROWS], dtype))
        return made

    def to_usearch(self):
        """Returns an index of usearch with the same rows, for approximate search in memory.

        Its keys are the row numbers. Distances are 1 minus the inner product, or Hamming's for
        bits. Queries must have the same precision: see `quantize_vectors`.

        Raises:
            UserError: If usearch is not installed.
        """
        usearch = require_package("usearch.index", "to_usearch()")
        kinds = {"float32": "f32", "float16": "f16", "int8": "i8", "binary": "b1"}
        is_bits = self.precision == "binary"
        made = usearch.Index(
            ndim=8 * self.vectors.shape[1] if is_bits else self.vector_size,
            metric="hamming" if is_bits else "ip",
            dtype=kinds[self.precision],
        )
        for start in range(0, len(self), _BLOCK_ROWS):
            rows = np.array(self.vectors[start : start + _BLOCK_ROWS])
            made.add(np.arange(start, start + len(rows)), rows)
        return made
