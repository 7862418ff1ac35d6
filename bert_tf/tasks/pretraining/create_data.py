"""Text files to shuffled TFRecord files of pre-training examples, in several processes.

1. The text is checked and cut into chunks of documents (`document_chunks`).
2. This process tokenizes a chunk, in threads, and leaves its ids on disk.
3. A task is one pass over one chunk: it makes the examples, serializes them, and writes them as a
   run that is sorted by a random key of each (`example_runs`). Workers are processes without
   TensorFlow. All chance in a task comes from (random_seed, chunk, pass), so who does it and when
   does not matter.
4. The runs are merged by key: a uniform shuffle of all examples, however many there are. Example n
   goes to output file n modulo their number, as in google-research/bert.

Disk: the runs take as much as the output, beside the first output file, until the end.
"""

import concurrent.futures
import contextlib
import dataclasses
import itertools
import multiprocessing
import os
import random
import signal
from collections.abc import Iterator, Sequence

import numpy as np
import tqdm

from bert_tf.array_files import save_array
from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.files import scratch_directory, staged_files
from bert_tf.tasks.pretraining.document_chunks import Chunk, ChunkedCorpus, read_documents
from bert_tf.tasks.pretraining.example_runs import merge_runs, write_run
from bert_tf.tasks.pretraining.examples import ExampleOptions, MaskingVocabulary, create_examples
from bert_tf.tasks.pretraining.features import example_features, serialize_features
from bert_tf.tasks.pretraining.summary import PretrainingSummary

TEXTS_AT_A_TIME = 4096
TASKS_A_PROCESS = 2  # that are tokenized and submitted, so that no worker waits


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
        corpus: what `scan_documents` returned.
        output_files: the TFRecord files; those of one directory replace older ones together, or
            none is written.
        tokenizer: a `BertTokenizer` with a mask token.
        options: lengths and probabilities.
        dupe_factor: how many passes are made over each document, with other pairs and masks.
        random_seed: makes the result repeatable.
        num_processes: how many processes make examples, and how many threads tokenize.
        encoding_errors: as for `scan_documents`.
        progress: whether to show progress bars, with documents a second and the time left.

    Returns:
        The counts of all examples.

    Raises:
        DataError: no example can be made of the text.
        ConfigError: an option has no such value.
        UserError: the disk is full, or a worker process was ended from outside.

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
    if dupe_factor < 1 or num_processes < 1 or not output_files:
        raise ConfigError(
            "Expected dupe_factor and num_processes of at least 1 and an output file. Received: "
            f"dupe_factor={dupe_factor}, num_processes={num_processes}, "
            f"output_files={list(output_files)}."
        )
    vocabulary = MaskingVocabulary.of(tokenizer)
    beside = os.path.dirname(os.path.abspath(output_files[0]))
    try:
        with scratch_directory(beside) as scratch:
            tasks = _tasks(
                corpus, tokenizer, dupe_factor, random_seed, num_processes, encoding_errors, scratch
            )
            summary = PretrainingSummary(options.max_seq_length)
            runs: list[str] = []
            bar = tqdm.tqdm(
                total=corpus.documents * dupe_factor,
                desc="making examples",
                unit=" documents",
                unit_scale=True,
                disable=not progress,
            )
            with bar:
                for task, part in _run(tasks, _Job(vocabulary, options), num_processes):
                    summary.add(part)
                    runs.append(task.run_path)
                    bar.update(part.documents)
            if not summary.examples:
                raise DataError(
                    "Expected text that at least one pair of segments can be made of. Received: "
                    f"{summary.documents // dupe_factor} documents with words in them."
                )
            _write(merge_runs(sorted(runs)), output_files, summary.examples, progress)
            return summary
    except OSError as error:
        raise UserError(
            f"Expected readable text, and room for twice the examples in {beside}. "
            f"Received: {error}. Nothing was written."
        ) from error
    except concurrent.futures.BrokenExecutor as error:
        raise UserError(
            "Expected every worker process to end its work. Received: one was ended from outside, "
            "most often because memory ran out. Lower --num_processes or --chunk_megabytes. "
            "Nothing was written."
        ) from error


@dataclasses.dataclass(frozen=True)
class _Job:
    """What all tasks have in common; every worker gets it once."""

    vocabulary: MaskingVocabulary
    options: ExampleOptions


@dataclasses.dataclass(frozen=True)
class _Task:
    """One pass over one tokenized chunk."""

    tokens_path: str
    run_path: str
    seed: str


class _Document:
    """The sentences of a document, taken out of the chunk's ids when they are asked for."""

    def __init__(self, ids: np.ndarray, splits: np.ndarray):
        self._ids, self._splits = ids, splits

    def __len__(self) -> int:
        return len(self._splits) - 1

    def __getitem__(self, index: int) -> list[int]:
        return self._ids[self._splits[index] : self._splits[index + 1]].tolist()


_job_of_this_worker: _Job


def _start_worker(job: _Job) -> None:
    global _job_of_this_worker
    _job_of_this_worker = job


def _make_run_in_worker(task: _Task) -> PretrainingSummary:
    return _make_run(task, _job_of_this_worker)


def _make_run(task: _Task, job: _Job) -> PretrainingSummary:
    """Does a task."""
    ids = np.load(task.tokens_path + ".ids.npy")
    sentences = np.load(task.tokens_path + ".sentences.npy")
    borders = np.load(task.tokens_path + ".documents.npy").tolist()
    documents = [_Document(ids, sentences[a : b + 1]) for a, b in zip(borders, borders[1:])]
    rng = random.Random(task.seed)
    options = job.options
    summary = PretrainingSummary(options.max_seq_length, documents=len(documents))
    records = []
    for example in create_examples(documents, job.vocabulary, options, rng):
        summary.count(example)
        records.append(
            serialize_features(
                example_features(example, options.max_seq_length, options.max_predictions_per_seq)
            )
        )
    write_run(task.run_path, [rng.getrandbits(64) for _ in records], records)
    return summary


def _tasks(
    corpus, tokenizer, dupe_factor, random_seed, num_processes, encoding_errors, scratch
) -> Iterator[list[_Task]]:
    """Tokenizes chunk after chunk and yields the tasks on each."""
    with concurrent.futures.ThreadPoolExecutor(num_processes) as threads:
        for number, chunk in enumerate(corpus.chunks):
            tokens_path = os.path.join(scratch, f"{number:08}")
            _tokenize(chunk, tokenizer, encoding_errors, threads, tokens_path)
            yield [
                _Task(tokens_path, f"{tokens_path}-{dupe:08}.run", f"{random_seed}/{number}/{dupe}")
                for dupe in range(dupe_factor)
            ]


def _tokenize(chunk: Chunk, tokenizer, encoding_errors: str, threads, path: str) -> None:
    """Writes the ids of a chunk's text, and where its sentences and documents begin."""
    sizes: list[int] = []  # sentences in each document

    def sentences() -> Iterator[str]:
        for document in read_documents(chunk, encoding_errors):
            sizes.append(len(document))
            yield from document

    texts = sentences()
    batches = iter(lambda: list(itertools.islice(texts, TEXTS_AT_A_TIME)), [])

    def tokenize(batch: list[str]) -> tuple[np.ndarray, np.ndarray]:
        ids = tokenizer.tokenize(batch)
        return ids.flat_values.numpy(), ids.row_lengths().numpy()

    parts = list(threads.map(tokenize, batches))
    ids = np.concatenate([np.zeros([0], np.int32), *(part[0] for part in parts)])
    lengths = np.concatenate([np.zeros([0], np.int64), *(part[1] for part in parts)])
    # A line of which nothing is left is no sentence, a document without sentences no document.
    document_of = np.repeat(np.arange(len(sizes)), sizes)[lengths > 0]
    lengths = lengths[lengths > 0]
    in_document = np.bincount(document_of, minlength=len(sizes))
    save_array(path + ".ids.npy", ids)
    save_array(path + ".sentences.npy", np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
    save_array(
        path + ".documents.npy",
        np.concatenate([[0], np.cumsum(in_document[in_document > 0])]).astype(np.int64),
    )


def _run(
    tasks: Iterator[list[_Task]], job: _Job, num_processes: int
) -> Iterator[tuple[_Task, PretrainingSummary]]:
    """Does all tasks, in this process or in workers, and yields their summaries as they come."""
    if num_processes == 1:
        for group in tasks:
            for task in group:
                yield task, _make_run(task, job)
            _remove_tokens(group[0])
        return
    # Forking a process in which TensorFlow runs threads may hang it.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        num_processes, context, initializer=_start_worker, initargs=(job,)
    ) as pool:
        left: dict[str, int] = {}
        pending: dict[concurrent.futures.Future, _Task] = {}
        groups = iter(tasks)
        more = True
        try:
            while more or pending:
                while more and len(pending) < TASKS_A_PROCESS * num_processes:
                    group = next(groups, None)
                    more = group is not None
                    for task in group or ():
                        left[task.tokens_path] = left.get(task.tokens_path, 0) + 1
                        with _interrupts_blocked():  # `submit` starts the workers
                            future = pool.submit(_make_run_in_worker, task)
                        pending[future] = task
                done, _ = concurrent.futures.wait(
                    pending, return_when=concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    task = pending.pop(future)
                    yield task, future.result()
                    left[task.tokens_path] -= 1
                    if not left[task.tokens_path]:
                        del left[task.tokens_path]
                        _remove_tokens(task)
        except BaseException:
            # The tasks that have begun are finished: ending their processes can hang the pool.
            pool.shutdown(wait=True, cancel_futures=True)
            raise


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started inside never see Ctrl-C, which a terminal sends to all of a program's."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _remove_tokens(task: _Task) -> None:
    for what in ("ids", "sentences", "documents"):
        os.remove(f"{task.tokens_path}.{what}.npy")


def _write(
    records: Iterator[bytes], output_files: Sequence[str | os.PathLike], total: int, progress: bool
) -> None:
    """Writes record n to file n modulo their number; those of a directory appear together."""
    import tensorflow as tf

    try:
        with contextlib.ExitStack() as stack:
            places = [os.path.split(os.path.abspath(path)) for path in output_files]
            staged = {
                folder: stack.enter_context(staged_files(folder))
                for folder in {folder for folder, _ in places}
            }
            paths = [os.path.join(staged[folder], name) for folder, name in places]
            with contextlib.ExitStack() as writing:
                writers = [writing.enter_context(tf.io.TFRecordWriter(path)) for path in paths]
                bar = tqdm.tqdm(
                    records,
                    total=total,
                    desc="writing",
                    unit=" examples",
                    unit_scale=True,
                    disable=not progress,
                )
                for record, writer in zip(bar, itertools.cycle(writers)):
                    writer.write(record)
    except tf.errors.OpError as error:
        raise UserError(
            f"Expected to write {', '.join(map(str, output_files))}. Received: {error.message}. "
            "Nothing was written."
        ) from error
