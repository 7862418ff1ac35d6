"""Encodes texts in several processes, each with its own GPU or its own share of the processor."""

import concurrent.futures
import multiprocessing
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf.base.interrupts import interrupts_blocked
from bert_tf.errors import UserError, check_limits, user_error
from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

MOST_TEXTS = 5000  # of a task; sentence-transformers has the same
_TASKS_PER_PROCESS = 4  # so that a slow one does not keep the others waiting

_worker: dict[str, Any] = {}  # of this process: its encoder, or why there is none


class EncodingPool:
    """Processes that encode texts with the same `BertSentenceEncoder`. A context manager.

    One process already uses all cores, so without GPUs a pool helps only on machines with many
    cores. A script that starts a pool needs `if __name__ == "__main__":`, because workers import
    the script.

    Args:
        directory: The checkpoint, as for `BertSentenceEncoder.from_pretrained`.
        num_processes: The number of processes.
        devices: What each process has as `CUDA_VISIBLE_DEVICES`, such as ["0", "1"]. None for
            processors: each process has its own share of the cores.
        precision: For `optimize_for_inference`, such as "float32"; None for the plain model.
        **options: See `BertSentenceEncoder.from_pretrained`.

    Raises:
        ConfigError: If `num_processes` is below 1.
        UserError: If there are not as many devices.

    Example:
        >>> with bert_tf.tasks.sentence_embedding.EncodingPool("minilm/", 2) as pool:
        ...     pool.encode(["A dog barks.", "Interest rates"]).shape
        (2, 384)

    Reference: sentence-transformers, `start_multi_process_pool`.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        num_processes: int,
        devices: Sequence[str] | None = None,
        precision: str | None = None,
        **options,
    ):
        check_limits(num_processes=num_processes)
        if devices is not None and len(devices) != num_processes:
            expected = f"have {num_processes} items, one for each process"
            raise user_error("`devices`", expected, f"{len(devices)} items")
        context = multiprocessing.get_context("spawn")  # fork may deadlock with TensorFlow
        places = context.SimpleQueue()
        cores = sorted(os.sched_getaffinity(0))
        for number in range(num_processes):
            share = cores[number::num_processes] if devices is None else cores
            places.put((None if devices is None else devices[number], share or cores))
        self.num_processes = num_processes
        arguments = (places, os.fspath(directory), precision, options)
        self._pool = concurrent.futures.ProcessPoolExecutor(
            num_processes, context, initializer=_start, initargs=arguments
        )

    def encode(self, texts: Sequence[str], **options) -> np.ndarray:
        """Returns the vectors of texts.

        Args:
            texts: A list of strings.
            **options: See `BertSentenceEncoder.encode`.

        Returns:
            float32 `[n, D]`.

        Raises:
            UserError: See `BertSentenceEncoder.from_pretrained` and `encode`, if `texts` is one
                string, or if a process has ended.
            DataError: If a text is missing or malformed.
        """
        if isinstance(texts, (str, bytes)):
            raise UserError(f"`texts` must be a list of strings. Received: {texts!r:.100}")
        texts = list(texts)
        size = -(-len(texts) // (_TASKS_PER_PROCESS * self.num_processes))
        size = min(max(size, 1), MOST_TEXTS)
        try:
            with interrupts_blocked():  # `submit` starts the workers
                tasks = [
                    self._pool.submit(_encode, texts[start : start + size], options)
                    for start in range(0, max(len(texts), 1), size)
                ]
            return np.concatenate([task.result() for task in tasks])
        except concurrent.futures.BrokenExecutor:
            expected = "go on until it is closed"
            received = "one has ended. There may not be enough memory: start fewer."
            raise user_error("All processes of the pool", expected, received) from None

    def close(self) -> None:
        """Ends the processes after their current work."""
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> "EncodingPool":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def _start(places, directory, precision, options) -> None:
    """Begins a worker. An error is kept for its tasks, which raise it in the main process."""
    device, cores = places.get()
    os.sched_setaffinity(0, cores)
    if device is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = device
    try:
        _worker["encoder"] = BertSentenceEncoder.from_pretrained(directory, **options)
        if precision is not None:
            _worker["encoder"].optimize_for_inference(precision)
    except Exception as error:
        _worker["error"] = error


def _encode(texts, options) -> np.ndarray:
    if "error" in _worker:
        raise _worker["error"]
    return _worker["encoder"].encode(texts, **options)
