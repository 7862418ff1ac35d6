"""Text files to shuffled TFRecord files of pre-training examples, in several processes.

1. The text is checked and divided into chunks of documents (`document_chunks`).
2. The main process tokenizes each chunk in threads and writes the token ids to the disk.
3. A task is one pass over one chunk, with random numbers of its own: it writes serialized examples
   as a run, a file sorted by random keys. Worker processes do not import TensorFlow.
4. The runs are merged by key, one slice of the keys after the other, which is a uniform shuffle of
   all examples. Example n is written to the output file n modulo the number of files, as in
   google-research/bert.

The runs need as much disk space as the output, in the directory of the first output file.
"""

import collections
import concurrent.futures
import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from bert_tf.base.array_files import save_array
from bert_tf.base.files import scratch_directory, staged_files
from bert_tf.base.interrupts import interrupts_blocked
from bert_tf.base.progress import progress_bar
from bert_tf.base.regular_files import open_regular
from bert_tf.errors import DataError, UserError, require, user_error
from bert_tf.tasks.pretraining.chunk_examples import (
    PretrainingSummary,
    TokenizedChunk,
    make_records,
    tokenize_documents,
)
from bert_tf.tasks.pretraining.document_chunks import ChunkedCorpus, read_documents
from bert_tf.tasks.pretraining.examples import ExampleOptions, MaskingVocabulary

TASKS_PER_PROCESS = 2  # that are tokenized and submitted, so that no worker waits
MERGE_BYTES = 256 << 20  # of records in memory at a time


def create_pretraining_data(
    corpus: ChunkedCorpus,
    output_files: Sequence[str | os.PathLike],
    tokenizer,
    options: ExampleOptions,
    dupe_factor: int = 10,
    random_seed: int = 12345,
    num_processes: int = 1,
    encoding_errors: str = "strict",
    progress: bool = True,
) -> PretrainingSummary:
    """Writes the pre-training examples of a corpus; the bytes do not depend on `num_processes`.

    Args:
        corpus: The result of `scan_documents`.
        output_files: The TFRecord files. The files of one directory replace older files together.
        tokenizer: A `BertTokenizer` with a mask token.
        options: Lengths and probabilities.
        dupe_factor: The number of passes over each document, with different pairs and masks.
        random_seed: The seed.
        num_processes: The number of processes that make examples and of threads that tokenize.
        encoding_errors: See `scan_documents`.
        progress: Whether to show progress bars.

    Returns:
        The counts of all examples.

    Raises:
        ConfigError: If a number is less than 1, there is no output file, or the tokenizer has no
            mask token.
        DataError: If no example can be made of the text.
        UserError: If a file cannot be read or written, or if a worker process was killed.

    Example:
        >>> from bert_tf.tasks.pretraining.document_chunks import scan_documents
        >>> from bert_tf.tasks.pretraining.examples import ExampleOptions
        >>> summary = bert_tf.tasks.pretraining.create_pretraining_data(
        ...     scan_documents(["corpus/films.txt"], progress=False),
        ...     ["films.tfrecord"],
        ...     bert_tf.BertTokenizer("vocab.txt"),
        ...     ExampleOptions(max_seq_length=16, max_predictions_per_seq=3),
        ...     progress=False,
        ... )
        >>> summary.examples > 0
        True
    """
    require(dupe_factor >= 1, "must be at least 1", dupe_factor=dupe_factor)
    require(num_processes >= 1, "must be at least 1", num_processes=num_processes)
    require(output_files, "must not be empty", output_files=output_files)
    vocabulary = MaskingVocabulary.of(tokenizer)
    directory = os.path.dirname(os.path.abspath(output_files[0]))
    summary = PretrainingSummary(options.max_seq_length)
    runs: list[str] = []
    passes = collections.Counter()
    shown = {"unit_scale": True, "disable": not progress}
    total = corpus.documents * dupe_factor
    try:
        with scratch_directory(directory) as scratch:
            chunks = _tokenized(corpus, tokenizer, encoding_errors, num_processes, scratch)
            tasks = (
                _Task(path, f"{path}-{dupe:08}.run", (random_seed, number, dupe))
                for number, path in enumerate(chunks)
                for dupe in range(dupe_factor)
            )
            with progress_bar(None, "making examples", total, unit=" documents", **shown) as bar:
                for task, part in _run(tasks, num_processes, vocabulary, options):
                    summary.add(part)
                    runs.append(task.run_path)
                    bar.update(part.documents)
                    passes[task.tokens_path] += 1
                    if passes[task.tokens_path] == dupe_factor:
                        for name in TokenizedChunk._fields:
                            os.remove(f"{task.tokens_path}.{name}.npy")
            if not summary.examples:
                expected = "have text for at least one pair of segments"
                received = f"{summary.documents // dupe_factor} documents with words"
                raise user_error("`corpus`", expected, received, DataError)
            records = merge_runs(sorted(runs))
            bar = progress_bar(records, "writing", summary.examples, unit=" examples", **shown)
            _write(bar, output_files)
            return summary
    except OSError as error:
        expected = f"be readable, and {directory} must have room for twice the examples"
        raise user_error("The text", expected, f"{error}. Nothing was written.") from error
    except concurrent.futures.BrokenExecutor as error:
        raise UserError(
            "Every worker process must complete its work. Received: one was ended from outside, "
            "most often because memory ran out. Lower --num_processes or --chunk_megabytes. "
            "Nothing was written."
        ) from error


class _Task(NamedTuple):
    """One pass over one tokenized chunk."""

    tokens_path: str
    run_path: str
    seed: tuple[int, int, int]


def _make_run(
    task: _Task, vocabulary: MaskingVocabulary, options: ExampleOptions
) -> PretrainingSummary:
    arrays = (np.load(f"{task.tokens_path}.{name}.npy") for name in TokenizedChunk._fields)
    keys, records, summary = make_records(TokenizedChunk(*arrays), vocabulary, options, task.seed)
    write_sorted_run(task.run_path, keys, records)
    return summary


def _tokenized(
    corpus: ChunkedCorpus, tokenizer, encoding_errors: str, num_threads: int, scratch: str
) -> Iterator[str]:
    """Writes the ids of each chunk and its splits, and yields the path of the files."""
    with concurrent.futures.ThreadPoolExecutor(num_threads) as threads:
        for number, chunk in enumerate(corpus.chunks):
            documents = list(read_documents(chunk, encoding_errors))
            tokenized = tokenize_documents(documents, tokenizer, threads.map)
            path = os.path.join(scratch, f"{number:08}")
            for name, array in tokenized._asdict().items():
                save_array(f"{path}.{name}.npy", array)
            yield path


def _run(
    tasks: Iterator[_Task], num_processes: int, *arguments
) -> Iterator[tuple[_Task, PretrainingSummary]]:
    """Runs the tasks in this process or in workers, and yields their summaries as they end."""
    if num_processes == 1:
        yield from ((task, _make_run(task, *arguments)) for task in tasks)
        return
    pending: dict[concurrent.futures.Future, _Task] = {}

    def ended():
        done, _ = concurrent.futures.wait(pending, return_when=concurrent.futures.FIRST_COMPLETED)
        for future in done:
            yield pending.pop(future), future.result()

    # Not fork, which may deadlock in a process with TensorFlow's threads.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(num_processes, context) as pool:
        try:
            for task in tasks:
                with interrupts_blocked():  # `submit` starts the workers
                    pending[pool.submit(_make_run, task, *arguments)] = task
                while len(pending) >= TASKS_PER_PROCESS * num_processes:
                    yield from ended()
            while pending:
                yield from ended()
        except BaseException:
            # Running tasks are completed, because killing their processes may hang the pool.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _write(records: Iterable[bytes], output_files: Sequence[str | os.PathLike]) -> None:
    """Writes record n to file n modulo their number; the files of a directory appear together."""
    import tensorflow as tf

    places = [os.path.split(os.path.abspath(path)) for path in output_files]
    try:
        with contextlib.ExitStack() as stack:
            folders = {folder for folder, _ in places}
            staged = {folder: stack.enter_context(staged_files(folder)) for folder in folders}
            paths = [os.path.join(staged[folder], name) for folder, name in places]
            writers = [stack.enter_context(tf.io.TFRecordWriter(path)) for path in paths]
            for record, writer in zip(records, itertools.cycle(writers)):
                writer.write(record)
    except tf.errors.OpError as error:
        received = f"{error.message}. Nothing was written."
        raise user_error(", ".join(map(str, output_files)), "be writable", received) from error


def write_sorted_run(path: str, keys: Sequence[int], records: Sequence[bytes]) -> None:
    """Writes a run (`path`, `path`.keys.npy, `path`.splits.npy); `keys` are below 2^64."""
    keys = np.asarray(keys, np.uint64)
    order = np.argsort(keys, kind="stable")
    splits = np.cumsum([0, *(len(records[index]) for index in order)], dtype=np.int64)
    with open(path, "wb") as file:
        file.writelines(records[index] for index in order)
    save_array(path + ".keys.npy", keys[order])
    save_array(path + ".splits.npy", splits)


def merge_runs(paths: Sequence[str], merge_bytes: int = MERGE_BYTES) -> Iterator[bytes]:
    """Yields the records of all runs in the order of their keys, or of `paths` for equal keys.

    About `merge_bytes` are in memory at a time, on which the order does not depend.
    """
    total = sum(os.path.getsize(path) for path in paths)
    slices = max(1, -(-total // merge_bytes))
    edges = [2**64 * index // slices for index in range(slices + 1)]
    for low, high in zip(edges, edges[1:]):
        keys: list[np.ndarray] = []
        records: list[bytes] = []
        for path in paths:
            part_keys, part = _read_slice(path, low, high - 1)
            keys.append(part_keys)
            records += part
        for place in np.argsort(np.concatenate(keys), kind="stable"):
            yield records[place]


def _read_slice(path: str, low: int, high: int) -> tuple[np.ndarray, list[bytes]]:
    """Returns the keys in [low, high] and their records."""
    keys = np.load(path + ".keys.npy", mmap_mode="r")
    first = np.searchsorted(keys, np.uint64(low))
    end = np.searchsorted(keys, np.uint64(high), side="right")
    splits = np.load(path + ".splits.npy", mmap_mode="r")[first : end + 1].tolist()
    with open_regular(path) as file:
        file.seek(splits[0])
        records = [file.read(stop - start) for start, stop in zip(splits, splits[1:])]
    return np.array(keys[first:end]), records
