"""Tokenizes chunks of text when they are needed and keeps some of them in memory."""

import concurrent.futures
import functools
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.base.python_functions import from_generator
from bert_tf.base.ragged_rows import row_ids
from bert_tf.tasks.pretraining.document_chunks import Chunk, read_documents, token_splits
from bert_tf.text.code_points import starts as begins
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.whole_words import Segmenter, whole_word_units

_SLICE_BYTES = 1 << 19  # tokenized at once; limits the memory of the tokenizer's graph
_RECENT_CHUNKS = 2


class Tokens(NamedTuple):
    """The tokens of a chunk, and whether each one starts a word."""

    ids: np.ndarray  # [R], int32
    word_starts: np.ndarray  # [R], bool


class TokenSource:
    """Tokenizes chunks for several iterators and keeps those of the first `cache_bytes` of text."""

    def __init__(
        self,
        chunks: Sequence[Chunk],
        tokenizer: BertTokenizer,
        segmenter: Segmenter | None,
        cache_bytes: int,
    ):
        self._chunks = chunks
        self._errors = tokenizer.errors
        # Unlike the segmenter itself, its method always has a hash.
        self._worker = _worker(tokenizer, None if segmenter is None else segmenter.__call__)
        total = np.cumsum([chunk.size for chunk in chunks])
        self._num_cached = int(np.sum(total <= cache_bytes))
        self._lock = threading.Lock()
        self._splits: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._tokens: dict[int, Tokens] = {}
        self._pending: dict[int, concurrent.futures.Future] = {}

    def sentence_splits(self, chunk: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the `token_splits` of a chunk, which are kept in memory."""
        if chunk not in self._splits:
            self.tokens(chunk)
        return self._splits[chunk]

    def tokens(self, chunk: int) -> Tokens:
        """Returns the tokens of a chunk."""
        with self._lock:
            if chunk not in self._tokens:
                future = self._pending.pop(chunk, None) or self._worker.submit(self._load, chunk)
                self._splits[chunk], tokens = future.result()
                recent = [other for other in self._tokens if other >= self._num_cached]
                for other in recent[: max(0, len(recent) - _RECENT_CHUNKS + 1)]:
                    del self._tokens[other]
                self._tokens[chunk] = tokens
            return self._tokens[chunk]

    def prefetch(self, chunk: int) -> None:
        """Starts to tokenize the chunk that is needed next."""
        with self._lock:
            if chunk not in self._tokens and chunk not in self._pending:
                self._pending = {chunk: self._worker.submit(self._load, chunk)}

    def _load(self, chunk: int) -> tuple[tuple[np.ndarray, np.ndarray], Tokens]:
        documents = list(read_documents(self._chunks[chunk], self._errors))
        lines = [line.encode() for document in documents for line in document]
        sizes = np.array([len(line) for line in lines], np.int64)
        slices = np.cumsum(sizes) // _SLICE_BYTES  # the slice of each line
        borders = np.flatnonzero(np.diff(slices)) + 1
        texts = np.split(np.array(lines, object), borders)
        parts = map(self._worker.tokens, texts)
        ids, lengths, word_starts = map(np.concatenate, zip(*parts))
        splits = token_splits([len(document) for document in documents], lengths)
        return splits, Tokens(ids, word_starts)


class _Worker(concurrent.futures.ThreadPoolExecutor):
    """A thread that tokenizes."""

    def __init__(self, tokenizer: BertTokenizer, segmenter: Segmenter | None):
        super().__init__(1, "bert_tf_tokens")
        self._tokenizer = tokenizer
        self._segmenter = segmenter
        self._requests: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()

    def tokens(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns the `_tokens_of` strings; called in the thread."""
        results = self._results  # an error in tracing must not leave a request in the queue
        self._requests.put(texts)
        return next(results)

    @functools.cached_property
    def _results(self) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """The `_tokens_of` the strings in the queue of requests."""

        def requests():
            while True:
                yield self._requests.get()

        with tf.device("CPU:0"):
            dataset = from_generator(
                requests, output_signature=tf.TensorSpec([None], tf.string)
            ).map(self._tokens_of)
        options = tf.data.Options()
        # A separate thread, because all others may be waiting for these tokens.
        options.threading.private_threadpool_size = 1
        # A generator that waits for a request in advance would block the end of the process.
        options.experimental_optimization.inject_prefetch = False
        options.autotune.enabled = False  # its thread, too, can block the end of the process
        return dataset.with_options(options).as_numpy_iterator()

    @tf.autograph.experimental.do_not_convert  # no branch depends on a tensor
    def _tokens_of(self, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Returns the ids [R] of strings, the number of tokens of each, and word starts [R]."""
        if self._segmenter is None:
            ids = self._tokenizer.tokenize(texts)
            starts = self._tokenizer.word_starts(ids.values)
            return ids.values, ids.row_lengths(), starts | begins(row_ids(ids.row_splits))
        ids, units = whole_word_units(self._tokenizer, texts, self._segmenter)
        rows, units = row_ids(units.row_splits), units.values
        changes = (units[1:] != units[:-1]) | (rows[1:] != rows[:-1])
        word_starts = tf.concat([tf.ones_like(units[:1], tf.bool), changes], axis=0)
        return ids.values, ids.row_lengths(), word_starts


# Tracing and starting the dataset of a worker takes longer than tokenizing a small chunk.
_worker = functools.lru_cache(maxsize=4)(_Worker)
