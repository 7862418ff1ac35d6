"""Text files of documents, cut into chunks that fit into memory.

One sentence a line, a blank line between documents, as google-research/bert wants it; unlike there,
the end of a file ends its document too. A chunk is whole documents, about `chunk_bytes` of text;
only a document of more than twice that is cut. The cuts depend on the files alone.
"""

import dataclasses
import os
from collections.abc import Iterator, Sequence

import tqdm

from bert_tf.errors import ConfigError, DataError

DEFAULT_CHUNK_BYTES = 32 << 20
ENCODING_ERRORS = ("strict", "replace")
UTF8_BOM = b"\xef\xbb\xbf"


@dataclasses.dataclass(frozen=True)
class Span:
    """Bytes `start` to `end` of a file, which begin and end at line ends."""

    path: str
    start: int
    end: int


@dataclasses.dataclass
class Chunk:
    """Documents that are worked on together: they find their random next segments in each other.

    Args:
        spans: where their text stands.
        documents: how many there are.
        continues: whether the first one is the rest of a document that was cut.
    """

    spans: list[Span]
    documents: int = 0
    continues: bool = False

    @property
    def size(self) -> int:
        """Bytes of text."""
        return sum(span.end - span.start for span in self.spans)


@dataclasses.dataclass(frozen=True)
class ChunkedCorpus:
    """What `scan_documents` found.

    Args:
        chunks: all text, in order.
        cuts: how many chunks end inside a document, because it is too long for them.
    """

    chunks: list[Chunk]
    cuts: int

    @property
    def documents(self) -> int:
        """The number of documents, the parts of a cut one counted singly."""
        return sum(chunk.documents for chunk in self.chunks)


def scan_documents(
    paths: Sequence[str | os.PathLike],
    chunk_bytes: int = DEFAULT_CHUNK_BYTES,
    errors: str = "strict",
    progress: bool = True,
) -> ChunkedCorpus:
    """Reads all files once, checks them and cuts them into chunks of documents.

    Args:
        paths: UTF-8 text files, in this order.
        chunk_bytes: a chunk ends with the document that reaches this size (the last chunk may be
            up to four times as large: a small rest joins the chunk before it).
        errors: "strict" refuses what is not UTF-8 text; "replace" leaves malformed bytes out, as
            the original does.
        progress: whether to show a progress bar.

    Returns:
        The chunks.

    Raises:
        DataError: a file is missing, binary or not UTF-8 (names file and line), or there is no
            text in any of them.
        ConfigError: an option has no such value.
    """
    if chunk_bytes < 1 or errors not in ENCODING_ERRORS:
        raise ConfigError(
            f"Expected chunk_bytes of at least 1 and errors one of {ENCODING_ERRORS}. "
            f"Received: chunk_bytes={chunk_bytes}, errors={errors!r}."
        )
    paths = [os.fspath(path) for path in paths]
    sizes = [_size(path) for path in paths]
    cutter = _Cutter(chunk_bytes)
    bar = tqdm.tqdm(
        total=sum(sizes), desc="checking the text", unit="B", unit_scale=True, disable=not progress
    )
    with bar:
        for path in paths:
            cutter.open(path)
            for number, line in enumerate(_lines(path), start=1):
                text = _decoded(line, path, number, errors)
                if text.strip():
                    cutter.sentence(len(line))
                else:
                    cutter.blank(len(line))
                bar.update(len(line))
            cutter.close()
    chunks = cutter.finish()
    if not chunks:
        raise DataError(
            "Expected text: one sentence a line, a blank line between documents. Received: "
            f"{len(paths)} files without a word ({', '.join(paths[:5])})."
        )
    return ChunkedCorpus(chunks, sum(chunk.continues for chunk in chunks))


def read_documents(chunk: Chunk, errors: str = "strict") -> Iterator[list[str]]:
    """Yields the documents of a chunk, each a list of sentences.

    Args:
        chunk: one of `scan_documents`.
        errors: as for `scan_documents`.
    """
    for span in chunk.spans:
        document: list[str] = []
        # Line numbers are those of the span: the scan has refused what could fail here.
        for number, line in enumerate(_lines(span.path, span.start, span.end), start=1):
            text = _decoded(line, span.path, number, errors).strip()
            if text:
                document.append(text)
            elif document:
                yield document
                document = []
        if document:
            yield document


class _Cutter:
    """Counts lines into documents and documents into chunks."""

    def __init__(self, chunk_bytes: int):
        self.chunk_bytes = chunk_bytes
        self.chunks: list[Chunk] = []
        self._chunk = Chunk([])
        self._bytes = 0
        self._in_document = self._was_cut = False

    def open(self, path: str):
        self._path, self._start, self._position = path, 0, 0

    def sentence(self, length: int):
        self._position += length
        self._bytes += length
        if not self._in_document:
            self._in_document = True
            self._chunk.documents += 1
            self._chunk.continues |= self._was_cut
            self._was_cut = False
        if self._bytes >= 2 * self.chunk_bytes:
            self._end_chunk()
            # The rest is a document of the next chunk, if there is a rest.
            self._in_document, self._was_cut = False, True

    def blank(self, length: int):
        self._position += length
        self._bytes += length
        self._end_document()

    def close(self):
        self._end_document()
        self._end_span()

    def finish(self) -> list[Chunk]:
        rest = self._chunk
        if (
            rest.documents
            and self.chunks
            and (self._bytes < self.chunk_bytes or rest.documents < 2)
        ):
            last = self.chunks[-1]
            if last.spans[-1].path == rest.spans[0].path:
                joined = Span(last.spans[-1].path, last.spans[-1].start, rest.spans[0].end)
                last.spans[-1:] = [joined, *rest.spans[1:]]
            else:
                last.spans += rest.spans
            last.documents += rest.documents - rest.continues
        elif rest.documents:
            self.chunks.append(rest)
        return self.chunks

    def _end_document(self):
        self._was_cut = False
        if self._in_document:
            self._in_document = False
            if self._bytes >= self.chunk_bytes and self._chunk.documents >= 2:
                self._end_chunk()

    def _end_span(self):
        if self._position > self._start:
            self._chunk.spans.append(Span(self._path, self._start, self._position))
        self._start = self._position

    def _end_chunk(self):
        self._end_span()
        self.chunks.append(self._chunk)
        self._chunk, self._bytes = Chunk([]), 0


def _size(path: str) -> int:
    try:
        with open(path, "rb"):
            return os.path.getsize(path)
    except OSError as error:
        raise DataError(
            f"Expected readable text files. Received: {path} ({error.strerror})."
        ) from None


def _lines(path: str, start: int = 0, end: int | None = None) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(start)
        for line in file:
            yield line
            start += len(line)
            if end is not None and start >= end:
                return


def _decoded(line: bytes, path: str, number: int, errors: str) -> str:
    if errors == "replace":
        return line.decode("utf-8", "ignore")
    if b"\0" in line:
        raise DataError(
            f"{path}, line {number}: expected text. Received: a zero byte, so this seems to be a "
            "binary file or UTF-16. Leave it out or convert it; --encoding_errors=replace reads "
            "what can be read."
        )
    try:
        return line.removeprefix(UTF8_BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}, line {number}: expected UTF-8. Received: byte 0x{line[error.start]:02x} at "
            f"position {error.start}. Convert the file, for example with iconv; "
            "--encoding_errors=replace leaves such bytes out."
        ) from None
