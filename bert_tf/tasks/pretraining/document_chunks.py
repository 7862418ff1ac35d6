"""Divides text files into chunks of documents that fit into memory.

The files have one sentence per line and a blank line between documents, as in google-research/bert.
Unlike there, the end of a file also ends its document. A chunk consists of whole documents with
about `chunk_bytes` of text. Only documents of more than twice that size are split.
"""

import dataclasses
import itertools
import os
from collections.abc import Iterator, Sequence

import numpy as np

from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import open_regular
from bert_tf.base.text_lines import FileSpan, decode_line, read_raw_lines
from bert_tf.errors import DataError, require, user_error

DEFAULT_CHUNK_BYTES = 32 << 20
ENCODING_ERRORS = ("strict", "replace")


@dataclasses.dataclass
class Chunk:
    """Documents that are processed together: random next segments come from the same chunk.

    Args:
        spans: Where the text is.
        documents: The number of documents.
        continues: Whether the first document is the rest of one that was split.

    Example:
        >>> from bert_tf.base.text_lines import FileSpan
        >>> Chunk([FileSpan("corpus/films.txt", 0, 52)], documents=1).size
        52
    """

    spans: list[FileSpan]
    documents: int = 0
    continues: bool = False

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(span.end - span.start for span in self.spans)


@dataclasses.dataclass(frozen=True)
class ChunkedCorpus:
    """The result of `scan_documents`.

    Args:
        chunks: The chunks, in the order of the text.
        cuts: The number of chunks that end inside a document.

    Example:
        >>> scan_documents(["corpus/films.txt"], progress=False).documents
        4
    """

    chunks: list[Chunk]
    cuts: int

    @property
    def documents(self) -> int:
        """The number of documents; the parts of a split document count separately."""
        return sum(chunk.documents for chunk in self.chunks)


def scan_documents(
    paths: Sequence[str | os.PathLike],
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    errors: str = "strict",
    progress: bool = True,
) -> ChunkedCorpus:
    """Reads all files once, checks them and divides them into chunks of documents.

    Args:
        paths: UTF-8 text files.
        chunk_bytes: A chunk ends with the document that reaches this size; the last one may be up
            to four times as large, because a small rest is added to it.
        errors: "strict" refuses invalid UTF-8, "replace" drops invalid bytes, as in the original.
        progress: Whether to show a progress bar.

    Raises:
        ConfigError: If `chunk_bytes` is less than 1 or `errors` is unknown.
        DataError: If a file is missing, binary or not UTF-8, or if there is no text.
    """
    require(chunk_bytes >= 1, "must be at least 1", chunk_bytes=chunk_bytes)
    require(errors in ENCODING_ERRORS, f"must be one of {ENCODING_ERRORS}", errors=errors)
    paths = [os.fspath(path) for path in paths]
    total = sum(map(_size, paths))
    cutter = DocumentCutter(chunk_bytes)
    shown = {"unit": "B", "unit_scale": True, "disable": not progress}
    with progress_bar(None, "checking the text", total, **shown) as bar:
        for path in paths:
            cutter.open(path)
            for number, line in enumerate(read_raw_lines(path), start=1):
                is_blank = not decode_line(line, path, number, errors).strip()
                cutter.line(len(line), is_blank)
                bar.update(len(line))
            cutter.close()
    chunks = cutter.finish()
    if not chunks:
        expected = "have text, with one sentence per line and a blank line between documents"
        received = f"{len(paths)} files without a word ({', '.join(paths[:5])})"
        raise user_error("The files", expected, received, DataError)
    return ChunkedCorpus(chunks, sum(chunk.continues for chunk in chunks))


def read_documents(chunk: Chunk, errors: str = "strict") -> Iterator[list[str]]:
    """Yields the documents of a chunk as lists of sentences; `errors` as in `scan_documents`."""
    for span in chunk.spans:
        # The line numbers are not those of the file, but the scan has already found all errors.
        lines = enumerate(read_raw_lines(span.path, span.start, span.end), start=1)
        texts = (decode_line(line, span.path, number, errors).strip() for number, line in lines)
        for is_document, document in itertools.groupby(texts, bool):
            if is_document:
                yield list(document)


def token_splits(sizes: list[int], lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns where sentences begin in the tokens, and where documents begin in the sentences.

    Sentences without tokens, and documents that have no others, are dropped. `sizes` are the
    numbers of sentences of documents, `lengths`, int `[sentences]`, those of tokens of sentences.
    """
    document_of = np.repeat(np.arange(len(sizes)), sizes)[lengths > 0]  # of each sentence
    splits = np.concatenate([[0], np.cumsum(lengths[lengths > 0])])
    starts = np.flatnonzero(np.diff(document_of, prepend=-1))
    return splits, np.concatenate([starts, [len(document_of)]])


class DocumentCutter:
    """Divides lines into documents and documents into chunks.

    Call `open` for each file, `line` for each of its lines, `close` at its end, and `finish` once.

    Args:
        chunk_bytes: See `scan_documents`.

    Example:
        >>> cutter = DocumentCutter(chunk_bytes=1000)
        >>> cutter.open("corpus/films.txt")
        >>> cutter.line(14, is_blank=False)
        >>> cutter.close()
        >>> cutter.finish()
        [Chunk(spans=[FileSpan(path='corpus/films.txt', start=0, end=14)], documents=1, ...)]
    """

    def __init__(self, chunk_bytes: int):
        self.chunk_bytes = chunk_bytes
        self.chunks: list[Chunk] = []
        self._chunk = Chunk([])
        self._bytes = 0
        self._in_document = self._was_cut = False

    def open(self, path: str, start: int = 0):
        self._path, self._start, self.position = path, start, start

    def line(self, length: int, is_blank: bool, text_bytes: int | None = None):
        """Adds a line of `length` bytes, of which `text_bytes` count for the size of a chunk."""
        self.skip(length, length if text_bytes is None else text_bytes)
        if is_blank:
            self._end_document()
            return
        if not self._in_document:
            self._in_document = True
            self._chunk.documents += 1
            self._chunk.continues |= self._was_cut
            self._was_cut = False
        if self._bytes >= 2 * self.chunk_bytes:
            self._end_chunk()
            # The rest of the document, if any, begins the next chunk.
            self._in_document, self._was_cut = False, True

    def skip(self, length: int, text_bytes: int):
        """Adds a line that is neither text nor the end of a document."""
        self.position += length
        self._bytes += text_bytes

    def is_cut_by(self, text_bytes: int) -> bool:
        """Returns whether so many bytes of lines would be divided, as parts of one document."""
        return self._bytes + text_bytes >= 2 * self.chunk_bytes

    def close(self):
        self._end_document()
        self._end_span()

    def finish(self) -> list[Chunk]:
        rest = self._chunk
        is_small = self._bytes < self.chunk_bytes or rest.documents < 2
        if rest.documents and self.chunks and is_small:
            last = self.chunks[-1]
            if last.spans[-1].path == rest.spans[0].path:
                end = rest.spans.pop(0).end
                last.spans[-1] = dataclasses.replace(last.spans[-1], end=end)
            last.spans += rest.spans
            last.documents += rest.documents - rest.continues
        elif rest.documents:
            self.chunks.append(rest)
        return self.chunks

    def _end_document(self):
        is_full = self._bytes >= self.chunk_bytes and self._chunk.documents >= 2
        if self._in_document and is_full:
            self._end_chunk()
        self._in_document = self._was_cut = False

    def _end_span(self):
        if self.position > self._start:
            self._chunk.spans.append(FileSpan(self._path, self._start, self.position))
        self._start = self.position

    def _end_chunk(self):
        self._end_span()
        self.chunks.append(self._chunk)
        self._chunk, self._bytes = Chunk([]), 0


def _size(path: str) -> int:
    try:
        with open_regular(path):
            return os.path.getsize(path)
    except OSError as error:
        received = error.strerror
        raise DataError(f"{path} must be a readable text file. Received: {received}") from None
