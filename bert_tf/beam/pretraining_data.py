"""Pre-training data as a Beam pipeline: the records of the local tool, byte for byte.

1. A first, short pipeline checks the text and finds the documents. The workers reduce each block of
   text to runs of lines of the same kind, which are a few numbers per document. The main program
   gives them in order to the `DocumentCutter` of the local tool, so that the chunks are the same,
   wherever blocks begin. It refuses damaged text, or reports it as dead letters.
2. The workers tokenize the chunks, and make the examples of each pass over each chunk as a run of
   records sorted by random keys (`example_steps`).
3. They merge the runs, partition by partition of the keys, and then write the output files.

The random numbers of a run depend on the seed, the chunk and the pass alone, so the records do not
depend on the workers.

Reference: google-research/bert `create_pretraining_data.py`.
"""

import contextlib
import functools
import json
import os
from collections.abc import Iterable, Iterator, Sequence

import apache_beam as beam
import numpy as np

from bert_tf.base.files import staged_files
from bert_tf.base.progress import progress_bar
from bert_tf.base.text_lines import FileSpan, read_raw_lines
from bert_tf.beam import example_steps
from bert_tf.beam.example_steps import ExampleSettings
from bert_tf.beam.file_access import (
    InputFile,
    copy,
    is_remote,
    open_file,
    read_segment,
    write_segments,
)
from bert_tf.beam.line_formats import (
    Line,
    LineFormat,
    LineKind,
    file_blocks,
    parsed_lines,
    spread_spans,
    write_spans,
)
from bert_tf.beam.running import run_pipeline, show_progress
from bert_tf.beam.workspace import DeadLetter, Workspace, letters_of_blocks
from bert_tf.errors import DataError, user_error
from bert_tf.tasks.pretraining import ChunkedCorpus, DocumentCutter, PretrainingSummary

_BLOCK, _LETTERS, _RUNS = range(3)  # the segments of a file; the runs of each span follow
_COLUMNS = 3  # of a run: kind, bytes, bytes of text


def _scan_block(
    item: tuple[int, list[FileSpan]], workspace: Workspace, line_format: LineFormat, stops: bool
) -> str:
    """Writes the runs of lines of a block, and a dead letter for each damaged line.

    With `stops`, the scan ends at its first dead letter.
    """
    number, spans = item

    def write(path: str) -> None:
        letters: list[DeadLetter] = []
        scans = []
        for span in spans:
            if not (letters and stops):
                scans.append(_scan_span(parsed_lines(span, line_format.parse, letters, stops)))
        firsts = [(span.path, first) for span, (first, _) in zip(spans, scans)]
        parts = [json.dumps(firsts).encode(), json.dumps(letters).encode()]
        parts += [np.array(runs, "<i8").tobytes() for _, runs in scans]
        write_segments(path, [[part] for part in parts])

    return workspace.file(_block_name(number), write)


def _scan_span(lines: Iterator[tuple[int, bytes, Line | None]]) -> tuple[int, list[list[int]]]:
    """Returns where the first line of a span begins, and its runs."""
    runs: list[list[int]] = []
    first = 0
    for position, line, parsed in lines:
        first = first if runs else position
        kind, _, text_bytes = parsed or Line(LineKind.OTHER, [], 0)
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

    Raises `DataError` if there is no text.
    """
    cutter = DocumentCutter(chunk_bytes)
    path, position = None, 0
    for number in blocks:
        scan = workspace.result(_block_name(number))
        for place, (next_path, first) in enumerate(json.loads(read_segment(scan, _BLOCK))):
            runs = np.frombuffer(read_segment(scan, _RUNS + place), "<i8")
            runs = runs.reshape(-1, _COLUMNS).tolist()
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


def _block_name(number: int) -> str:
    return f"scan-{number:08}"


def scan_corpus(
    workspace: Workspace,
    files: Sequence[InputFile],
    settings: ExampleSettings,
    options,
    keep_going: bool = False,
    max_retries: int = 3,
) -> tuple[ChunkedCorpus, Iterator[DeadLetter]]:
    """Checks the files and divides them into chunks of documents, in a pipeline.

    `options` are Beam's `PipelineOptions`; with `keep_going`, damaged lines and files are left out.
    Returns the chunks, and a dead letter for each line or file that is left out. The letters are
    read from the workspace.

    Raises:
        DataError: If there is no text, or a damaged line or file without `keep_going`.
        UserError: If the pipeline fails.
    """
    spans = workspace.path("blocks.jsonl")
    blocks = write_spans(spans, file_blocks(files, settings.block_bytes))
    build = functools.partial(_add_scan, spans, workspace, settings.line_format, not keep_going)
    with show_progress(workspace, "checking the text", blocks, "scan-"):
        run_pipeline(build, options, max_retries)
    names = map(_block_name, range(blocks))
    letters = letters_of_blocks(workspace, names, _LETTERS, refuse=not keep_going)
    shown = {"desc": "dividing the text", "unit": " blocks", "disable": blocks < 100}
    numbers = progress_bar(range(blocks), **shown)
    corpus = cut_documents(workspace, numbers, settings.line_format, settings.chunk_bytes)
    chunks = ((number, chunk.spans) for number, chunk in enumerate(corpus.chunks))
    write_spans(workspace.path(example_steps.CHUNKS), chunks)
    return corpus, letters


def write_examples(
    workspace: Workspace,
    corpus: ChunkedCorpus,
    settings: ExampleSettings,
    options,
    max_retries: int = 3,
) -> tuple[list[str], PretrainingSummary]:
    """Makes the examples of the result of `scan_corpus`, in a pipeline and in the same workspace.

    Returns the TFRecord files, in the workspace, and the counts of all examples.

    Raises:
        DataError: If no example can be made of the text.
        UserError: If the pipeline fails.
    """
    size = sum(chunk.size for chunk in corpus.chunks)
    partitions = example_steps.num_partitions(size, settings.dupe_factor, settings.partition_bytes)
    build = functools.partial(example_steps.add_steps, workspace, settings, partitions)
    chunks = len(corpus.chunks)
    total = chunks * (1 + settings.dupe_factor) + partitions + settings.num_files
    steps = ("tokens-", "run-", "partition-", "file-")
    with show_progress(workspace, "making examples", total, *steps):
        run_pipeline(build, options, max_retries)
    summary = PretrainingSummary(**workspace.result(example_steps.PLAN)["summary"])
    if not summary.examples:
        documents = summary.documents // settings.dupe_factor
        expected = "be enough for at least one pair of segments"
        raise user_error("The text", expected, f"{documents} documents with words", DataError)
    names = map(example_steps.file_name, range(settings.num_files))
    return [workspace.result(name) for name in names], summary


def copy_outputs(files: Sequence[str], output_files: Sequence[str]) -> None:
    """Copies files to their places; the local ones of one directory replace older files together.

    They stay in the workspace, so that a run that is interrupted here can be continued.
    """
    places = [os.path.split(target) for target in output_files]
    with contextlib.ExitStack() as stack:
        folders = {folder for folder, _ in places if not is_remote(folder)}
        staged = {folder: stack.enter_context(staged_files(folder or ".")) for folder in folders}
        for source, target, (folder, name) in zip(files, output_files, places):
            copy(source, target if is_remote(target) else os.path.join(staged[folder], name))


def _add_scan(spans: str, workspace, line_format, stops: bool, pipeline: beam.Pipeline) -> None:
    pipeline | spread_spans(spans) | beam.Map(_scan_block, workspace, line_format, stops)
