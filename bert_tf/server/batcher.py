"""Dynamic batching: waiting requests are computed together.

A batch starts as soon as the model is idle, with as many waiting rows as fit in the token budget,
so batches grow with the load. A single request is computed at once, unless `batch_wait` lets it
wait for others. Rows are taken from the requests in turn, one from each, so a request with one row
does not wait for one with a thousand rows.
"""

import asyncio
import collections
import dataclasses
import functools
import itertools
import queue
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus

import numpy as np

from bert_tf.server.errors import RequestError, invalid, of_computation
from bert_tf.server.limits import Limits
from bert_tf.server.metrics import Metrics
from bert_tf.server.served_model import ServedModel
from bert_tf.server.signatures import Signature

# An estimate: a WordPiece has 4 to 5 bytes in English text and 3 in Chinese text.
_BYTES_PER_TOKEN = 4
_SPECIAL_TOKENS = 2


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request in the queue; the rows before `next_row` are already in batches."""

    signature: Signature
    arrays: Mapping[str, np.ndarray]
    tokens: list[int]
    arrived: float
    answer: asyncio.Future
    next_row: int = 0
    parts: dict = dataclasses.field(default_factory=dict)  # the outputs by their first row

    @property
    def rows(self) -> int:
        return len(self.tokens)

    @functools.cached_property
    def kind(self) -> tuple:
        """Requests of the same kind can be computed together, if their signature joins rows."""
        return (self.signature.name, *(array.shape[1:] for array in self.arrays.values()))


@dataclasses.dataclass(eq=False)
class Batcher:
    """The request queue of a model, used on the event loop; a thread computes the batches."""

    model: ServedModel
    token_budget: int  # maximum tokens of a batch, estimated from the texts' bytes
    batch_wait: float  # seconds that a request waits for others to fill its batch
    limits: Limits
    metrics: Metrics

    def __post_init__(self):
        self._queue: collections.deque[_Waiting] = collections.deque()
        self._loop = asyncio.get_running_loop()
        # An executor takes ten times as long to hand a batch over.
        self._batches: queue.SimpleQueue[list | None] = queue.SimpleQueue()
        self._ended = asyncio.Event()  # whether the thread needs the event loop no more
        threading.Thread(target=self._compute_all, name="batch", daemon=True).start()
        self._is_computing = False
        self._timer: asyncio.TimerHandle | None = None  # of the next batch

    async def run(
        self, signature: Signature, arrays: Mapping[str, np.ndarray], rows: int
    ) -> dict[str, np.ndarray]:
        """Computes the outputs for one request, the arrays of all inputs with `rows` rows.

        Raises:
            RequestError: If the queue is full, the request is too large, the deadline passes or
                the computation fails.
        """
        if len(self._queue) >= self.limits.max_waiting:
            message = f"{len(self._queue)} requests are already waiting. Try again later."
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, message, flag="max_waiting")
        request = self._request(signature, arrays, rows)
        self._queue.append(request)
        # Not at once: requests that arrive in the same step of the event loop share the batch.
        self._loop.call_soon(self._start_batch)
        # A timer instead of `asyncio.wait_for`, which makes a task for each request.
        deadline = self._loop.call_later(self.limits.request_timeout, self._expire, request)
        try:
            return await request.answer
        finally:  # also if the client has disconnected
            deadline.cancel()
            if request in self._queue:
                self._queue.remove(request)

    @property
    def waiting(self) -> int:
        """The number of requests with rows that are not yet in a batch."""
        return len(self._queue)

    async def close(self) -> None:
        """Stops the thread; no request may be waiting.

        A batch may be computed until then, whose clients have disconnected.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._batches.put(None)
        await self._ended.wait()
        self.model = None

    def _request(self, signature, arrays, rows):
        tokens = _tokens(arrays, rows) if signature.has_rows else [0]
        has_texts = any(array.dtype == object for array in arrays.values())
        if has_texts and max(tokens) > self.limits.max_tokens:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The texts of a row must have at most {self.limits.max_tokens} tokens together. "
                f"Received: about {max(tokens)} in row {np.argmax(tokens)}. Split them.",
                flag="max_tokens",
            )
        if len(tokens) > 1 and sum(tokens) > self.token_budget and not signature.joins_rows:
            raise invalid(
                f"A request must have at most {self.token_budget} tokens, because the rows of "
                f"signature {signature.name} depend on each other and are computed in one batch. "
                f"Received: about {sum(tokens)} tokens in {rows} rows. Send fewer rows at a time.",
                flag="token_budget",
            )
        return _Waiting(signature, arrays, tokens, time.monotonic(), self._loop.create_future())

    def _expire(self, request):
        if not request.answer.done():
            message = f"No answer within {self.limits.request_timeout:g} seconds."
            status = HTTPStatus.GATEWAY_TIMEOUT
            error = RequestError(status, message, flag="request_timeout_seconds")
            request.answer.set_exception(error)

    def _start_batch(self):
        """Computes the next batch if the model is idle and the oldest request waited enough."""
        if self._is_computing or not self._queue:
            return
        if self._timer is not None:
            self._timer.cancel()
        left = self._queue[0].arrived + self.batch_wait - time.monotonic()
        waiting = (sum(item.tokens[item.next_row :]) for item in self._queue)
        if left > 0 and sum(waiting) < self.token_budget:
            self._timer = self._loop.call_later(left, self._start_batch)
            return
        self._is_computing = True
        self._batches.put(self._next_batch())

    def _next_batch(self) -> list[tuple[_Waiting, slice]]:
        """Takes the next rows of the requests from the queue."""
        oldest = self._queue[0]
        if not oldest.signature.joins_rows:
            self._queue.popleft()
            return [(oldest, slice(0, oldest.rows))]
        kind = oldest.kind
        members = collections.deque(item for item in self._queue if item.kind == kind)
        starts = {}
        tokens = longest = rows = 0
        while members:
            item = members.popleft()
            row = item.tokens[item.next_row]
            longest = max(longest, row)
            tokens += row
            rows += 1
            cost = tokens if self.model.padding_free else longest * rows
            if starts and cost > self.token_budget:
                break
            starts.setdefault(item, item.next_row)
            item.next_row += 1
            if item.next_row < item.rows:
                members.append(item)
        batch = [(item, slice(start, item.next_row)) for item, start in starts.items()]
        for item, _ in batch:  # a request with remaining rows moves to the end of the queue
            self._queue.remove(item)
            if item.next_row < item.rows:
                self._queue.append(item)
        return batch

    def _compute_all(self):
        while (batch := self._batches.get()) is not None:
            self._compute(batch)
            del batch  # it would be kept until the next one comes
        self._loop.call_soon_threadsafe(self._ended.set)

    def _compute(self, batch):
        """Computes a batch in the thread, and hands the outputs to the event loop."""
        started = time.monotonic()
        results = _results(self.model, batch)
        seconds = time.monotonic() - started
        self._loop.call_soon_threadsafe(self._finish, batch, results, started, seconds)

    def _finish(self, batch, results, started, seconds):
        self._is_computing = False
        self._start_batch()  # before the answers are written, so that the model does not wait
        for (item, rows), result in zip(batch, results, strict=True):
            _answer(item, rows, result)
        self._loop.call_soon(self._count, batch, started, seconds)  # after the answers are written

    def _count(self, batch, started, seconds):
        rows = sum(rows.stop - rows.start for _, rows in batch)
        self.metrics.batch_rows.observe(rows)
        self.metrics.batch_tokens.observe(sum(sum(item.tokens[rows]) for item, rows in batch))
        self.metrics.batch_wait_seconds.observe(started - min(item.arrived for item, _ in batch))
        self.metrics.batch_seconds.observe(seconds)


def _results(model, batch):
    """Returns the outputs for the rows of each request in a batch, or the error of its rows."""
    try:
        return _outputs(model, batch)
    except Exception as error:
        if len(batch) == 1:
            return [of_computation(error)]
        # Computed one by one to find the request that fails.
        return [result for part in batch for result in _results(model, [part])]


def _outputs(model, batch):
    signature = batch[0][0].signature
    if not signature.joins_rows:
        return [model.run(signature, batch[0][0].arrays)]
    arrays = {
        name: _stacked([item.arrays[name][rows] for item, rows in batch])
        for name in signature.inputs
    }
    outputs = model.run(signature, arrays)
    stops = list(itertools.accumulate(rows.stop - rows.start for _, rows in batch))
    for name, values in outputs.items():
        if len(values) != stops[-1]:
            raise ValueError(
                f"Output `{name}` must have {stops[-1]} rows, as the input. Received: "
                f"{len(values)} rows"
            )
    if len(batch) == 1:
        return [outputs]
    # Copies, because a view would keep the answers of the other requests in memory.
    return [
        {name: values[start:stop].copy() for name, values in outputs.items()}
        for start, stop in zip([0, *stops], stops)
    ]


def _answer(item, rows, result):
    """Adds the outputs of the next rows; the last ones, or an error, complete the answer."""
    if item.answer.done():
        return
    if isinstance(result, Exception):
        item.answer.set_exception(result)
        return
    item.parts[rows.start] = result
    if rows.stop < item.rows:
        return
    if item.signature.joins_rows:
        whole = {name: _stacked([part[name] for part in item.parts.values()]) for name in result}
        result = item.signature.trimmed(whole)
    item.answer.set_result(result)


def _stacked(arrays):
    """Concatenates the rows of several batches after padding them to the same width."""
    first = arrays[0]
    if len(arrays) == 1:
        return first
    if first.ndim > 1:
        width = max(array.shape[1] for array in arrays)
        empty = b"" if first.dtype == object else 0
        widths = [(0, 0)] * first.ndim
        for number, array in enumerate(arrays):
            widths[1] = 0, width - array.shape[1]
            arrays[number] = np.pad(array, widths, constant_values=empty)
    return np.concatenate(arrays)


def _tokens(arrays, rows):
    """Returns the estimated number of tokens of each row, from its texts or its ids.

    A model reads the single texts of a row again with each text of a list, such as its choices.
    """
    texts = [array for array in arrays.values() if array.dtype == object]
    if not texts:
        return [max(1, *(array[0].size for array in arrays.values()))] * rows
    has_single = any(array.ndim == 1 for array in texts)
    times = max(array.shape[1] if has_single and array.ndim > 1 else 1 for array in texts)
    tokens = [_SPECIAL_TOKENS * times] * rows
    for array in texts:
        for row, value in enumerate(array.reshape(rows, -1).tolist()):
            found = sum(len(text) for text in value) // _BYTES_PER_TOKEN + 1
            tokens[row] += found * (times if array.ndim == 1 else 1)
    return tokens
