"""Finds the documents of the corpus in parallel, and divides them into chunks.

The workers reduce each block of text to runs of lines of the same kind, which are a few numbers per
document. The main program gives them in order to the `DocumentCutter` of the local tool, so that
the chunks are the same, wherever blocks begin.
"""

import json
from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np

from bert_tf.base.text_lines import FileSpan, read_raw_lines
from bert_tf.beam.dead_letters import DeadLetter
from bert_tf.beam.file_access import open_file, read_segment, write_segments
from bert_tf.beam.file_blocks import Block, readable_lines
from bert_tf.beam.line_formats import LineFormat, LineKind
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError, user_error
from bert_tf.tasks.pretraining import ChunkedCorpus, DocumentCutter

_BLOCK, LETTERS, _RUNS = range(3)  # the segments of a file; the runs of each span follow
_COLUMNS = 3  # of a run: kind, bytes, bytes of text


class ScanBlock(beam.DoFn):
    """Writes the runs of lines of a block, and a dead letter for each damaged line.

    Args:
        workspace: Where to write them.
        line_format: How to read lines.
        stops: Whether the scan of a block ends at its first dead letter.
    """

    def __init__(self, workspace: Workspace, line_format: LineFormat, stops: bool):
        self.workspace, self.line_format, self.stops = workspace, line_format, stops

    def process(self, block: Block):
        name = block_name(block.number)
        yield self.workspace.file(name, lambda path: self._scan(path, block))

    def _scan(self, path: str, block: Block) -> None:
        letters: list[DeadLetter] = []
        scans = []
        for span in block.spans:
            if not (letters and self.stops):
                scans.append(self._scan_span(span, letters))
        spans = [(span.path, first) for span, (first, _) in zip(block.spans, scans)]
        parts = [json.dumps(spans).encode(), json.dumps(letters).encode()]
        parts += [np.array(runs, "<i8").tobytes() for _, runs in scans]
        write_segments(path, [[part] for part in parts])

    def _scan_span(self, span: FileSpan, letters: list[DeadLetter]) -> tuple[int, list[list[int]]]:
        """Returns where the first line of a span begins, and its runs."""
        runs: list[list[int]] = []
        first = span.start
        for position, line in readable_lines(span, letters):
            first = first if runs else position
            try:
                kind, _, text_bytes = self.line_format.parse(line, span.path, position)
            except DataError as error:
                letters.append(DeadLetter.of(span.path, position, line, error))
                kind, text_bytes = LineKind.OTHER, 0
            if letters and self.stops:
                break
            if kind == LineKind.DOCUMENT:
                _add(runs, LineKind.SENTENCE, len(line), text_bytes)
                _add(runs, LineKind.END, 0, 1)
            else:
                _add(runs, kind, len(line), text_bytes)
        return first, runs


def _add(runs: list[list[int]], kind: LineKind, size: int, text_bytes: int) -> None:
    """Adds a line to the last run, if it is of the same kind, or begins another run."""
    if kind == LineKind.END and runs and runs[-1][0] == LineKind.END:
        kind = LineKind.OTHER  # only the first blank line ends a document
    if runs and runs[-1][0] == kind != LineKind.END:
        runs[-1][1] += size
        runs[-1][2] += text_bytes
    else:
        runs.append([int(kind), size, text_bytes])


def cut_documents(
    workspace: Workspace, blocks: Iterable[int], line_format: LineFormat, chunk_bytes: int
) -> ChunkedCorpus:
    """Returns the chunks of documents of all scanned blocks, as `scan_documents` does.

    Raises:
        DataError: If there is no text.
    """
    cutter = DocumentCutter(chunk_bytes)
    path, position = None, 0
    for number in blocks:
        for next_path, first, runs in _scanned_spans(workspace, number):
            if not runs:  # an empty file, or a block inside of a long line
                continue
            if next_path != path or first != position:  # else the last line was the one before
                if path is not None:
                    cutter.close()
                path = next_path
                cutter.open(path, first)
            for kind, size, text_bytes in runs:
                _add_run(cutter, LineKind(kind), size, text_bytes, path, line_format)
            position = cutter.position
    if path is not None:
        cutter.close()
    chunks = cutter.finish()
    if not chunks:
        expected = "have text, with one sentence per line and a blank line between documents"
        raise user_error("The files", expected, "files without a word", DataError)
    return ChunkedCorpus(chunks, sum(chunk.continues for chunk in chunks))


def _add_run(cutter, kind, size, text_bytes, path, line_format) -> None:
    if kind != LineKind.SENTENCE:
        if kind == LineKind.END:
            cutter.line(size, True, text_bytes)
        else:
            cutter.skip(size, text_bytes)
    elif not cutter.is_cut_by(text_bytes):
        cutter.line(size, False, text_bytes)
    else:  # where it is cut depends on its lines
        start = cutter.position
        for line in read_raw_lines(path, start, start + size, open_file):
            parsed = line_format.parse(line, path, cutter.position)
            cutter.line(len(line), False, parsed.text_bytes)


def _scanned_spans(workspace: Workspace, number: int) -> Iterator[tuple[str, int, list]]:
    """Yields the path, the first line's position and the runs, `_COLUMNS` each, of each span."""
    path = workspace.result(block_name(number))
    for place, (source, first) in enumerate(json.loads(read_segment(path, _BLOCK))):
        runs = np.frombuffer(read_segment(path, _RUNS + place), "<i8")
        yield source, first, runs.reshape(-1, _COLUMNS).tolist()


def block_name(number: int) -> str:
    return f"scan-{number:08}"
