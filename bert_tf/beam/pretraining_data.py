"""Pre-training data as a Beam pipeline: the records of the local tool, byte for byte.

1. A first, short pipeline checks the text and finds the documents (`document_scan`). The main
   program divides them into chunks and refuses damaged text, or reports it as dead letters.
2. The workers tokenize the chunks, and make the examples of each pass over each chunk as a run of
   records sorted by random keys (`example_partitions`).
3. They merge the runs, partition by partition of the keys, and then write the output files.

Between the steps are only names of files in a `Workspace`, never text or examples: the
DirectRunner holds all elements between two steps in memory. The random numbers of a run depend on
the seed, the chunk and the pass alone, so the records do not depend on the workers.

Reference: google-research/bert `create_pretraining_data.py`.
"""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence

import apache_beam as beam

from bert_tf.base.files import staged_files
from bert_tf.base.progress import progress_bar
from bert_tf.beam import document_scan, example_partitions, example_steps
from bert_tf.beam.dead_letters import DeadLetter, letters_of_blocks
from bert_tf.beam.example_steps import ExampleSettings
from bert_tf.beam.file_access import InputFile, copy, is_remote
from bert_tf.beam.file_blocks import Block, file_blocks, spread_spans, write_spans
from bert_tf.beam.running import run_pipeline, show_progress
from bert_tf.beam.workspace import Workspace
from bert_tf.errors import DataError, user_error
from bert_tf.tasks.pretraining import ChunkedCorpus, PretrainingSummary


def scan_corpus(
    workspace: Workspace,
    files: Sequence[InputFile],
    settings: ExampleSettings,
    options,
    keep_going: bool = False,
    max_retries: int = 3,
) -> tuple[ChunkedCorpus, Iterator[DeadLetter]]:
    """Checks the files and divides them into chunks of documents, in a pipeline.

    Args:
        workspace: Where the work is kept.
        files: The input files.
        settings: The settings.
        options: Beam's `PipelineOptions`.
        keep_going: Whether damaged lines and files are left out.
        max_retries: See `run_pipeline`.

    Returns:
        The chunks, and a dead letter for each line or file that is left out. The letters are read
        from the workspace.

    Raises:
        DataError: If there is no text, or a damaged line or file without `keep_going`.
        UserError: If the pipeline fails.
    """
    spans = workspace.path("blocks.jsonl")
    blocks = write_spans(spans, file_blocks(files, settings.block_bytes))
    scan = document_scan.ScanBlock(workspace, settings.line_format, stops=not keep_going)
    build = functools.partial(_add_scan, spans, scan)
    with show_progress(workspace, "checking the text", blocks, "scan-"):
        run_pipeline(build, options, max_retries)
    names = map(document_scan.block_name, range(blocks))
    letters = letters_of_blocks(workspace, names, document_scan.LETTERS, refuse=not keep_going)
    shown = {"desc": "dividing the text", "unit": " blocks", "disable": blocks < 100}
    numbers = progress_bar(range(blocks), **shown)
    corpus = document_scan.cut_documents(
        workspace, numbers, settings.line_format, settings.chunk_bytes
    )
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
    """Makes the examples of a scanned corpus, in a pipeline.

    Args:
        workspace: The workspace of `scan_corpus`.
        corpus: The result of `scan_corpus`.
        settings: The settings.
        options: Beam's `PipelineOptions`.
        max_retries: See `run_pipeline`.

    Returns:
        The TFRecord files, in the workspace, and the counts of all examples.

    Raises:
        DataError: If no example can be made of the text.
        UserError: If the pipeline fails.
    """
    size = sum(chunk.size for chunk in corpus.chunks)
    partitions = example_partitions.num_partitions(
        size, settings.dupe_factor, settings.partition_bytes
    )
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


def _add_scan(spans: str, scan: document_scan.ScanBlock, pipeline: beam.Pipeline) -> None:
    pipeline | spread_spans(spans) | beam.Map(lambda item: Block(*item)) | beam.ParDo(scan)
