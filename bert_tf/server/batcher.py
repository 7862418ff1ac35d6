"""Dynamic batching: waiting requests are computed together.

A batch starts as soon as the model is idle, with as many waiting rows as fit in the token budget,
so batches grow with the load. A single request is computed at once, unless `batch_wait` lets it
wait for others. Rows are taken from the requests in turn, one from each, so a request with one row
does not wait for one with a thousand rows.
"""

import asyncio
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import itertools
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
    """The request queue of a model. All its work except the computation runs on the event loop."""

    model: ServedModel
    token_budget: int  # maximum tokens of a batch, estimated from the texts' bytes
    batch_wait: float  # seconds that a request waits for others to fill its batch
    limits: Limits
    metrics: Metrics

    def __post_init__(self):
        self._queue: collections.deque[_Waiting] = collections.deque()
        self._arrival = asyncio.Event()
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "batch")
        self._worker = asyncio.get_running_loop().create_task(self._work())

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
        self._arrival.set()
        try:
            return await asyncio.wait_for(request.answer, self.limits.request_timeout)
        except asyncio.TimeoutError:
            message = f"No answer within {self.limits.request_timeout:g} seconds."
            status = HTTPStatus.GATEWAY_TIMEOUT
            raise RequestError(status, message, flag="request_timeout_seconds") from None
        finally:  # also if the client has disconnected
            if request in self._queue:
                self._queue.remove(request)

    @property
    def waiting(self) -> int:
        """The number of requests with rows that are not yet in a batch."""
        return len(self._queue)

    async def close(self) -> None:
        """Stops the worker; no request may be waiting."""
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        self._executor.shutdown(wait=False)  # the clients of its last batch have disconnected
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
        answer = asyncio.get_running_loop().create_future()
        return _Waiting(signature, arrays, tokens, time.monotonic(), answer)

    async def _work(self):
        while True:
            self._arrival.clear()
            left = self._seconds_left()
            if left is None or left > 0:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._arrival.wait(), left)
            else:
                await self._compute(self._next_batch())

    def _seconds_left(self) -> float | None:
        """Returns the time until the next batch starts, or None if no request is waiting."""
        if not self._queue:
            return None
        if sum(sum(item.tokens[item.next_row :]) for item in self._queue) >= self.token_budget:
            return 0.0
        return self._queue[0].arrived + self.batch_wait - time.monotonic()

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

    async def _compute(self, batch):
        try:
            await self._answer_all(batch)
        except Exception as error:
            item, _ = batch[0]
            if len(batch) == 1:
                if not item.answer.done():
                    item.answer.set_exception(of_computation(error))
                return
            for part in batch:  # computed one by one to find the request that fails
                await self._compute([part])

    async def _answer_all(self, batch):
        signature, arrays = batch[0][0].signature, batch[0][0].arrays
        if signature.joins_rows:
            arrays = {
                name: np.concatenate([item.arrays[name][rows] for item, rows in batch])
                for name in signature.inputs
            }
        count = sum(rows.stop - rows.start for _, rows in batch)
        started = time.monotonic()
        self.metrics.batch_rows.observe(count)
        self.metrics.batch_tokens.observe(sum(sum(item.tokens[rows]) for item, rows in batch))
        self.metrics.batch_wait_seconds.observe(started - min(item.arrived for item, _ in batch))
        sizes = [rows.stop - rows.start for _, rows in batch] if signature.joins_rows else None
        parts = await asyncio.get_running_loop().run_in_executor(
            self._executor, _computed, self.model, signature, arrays, sizes
        )
        self.metrics.batch_seconds.observe(time.monotonic() - started)
        for (item, rows), part in zip(batch, parts, strict=True):
            _answer(item, rows, part)


def _computed(model, signature, arrays, sizes):
    """Returns the outputs for each of the requests, whose numbers of rows are `sizes`."""
    outputs = model.run(signature, arrays)
    if sizes is None:
        return [outputs]
    for name, values in outputs.items():
        if len(values) != sum(sizes):
            raise ValueError(
                f"Output `{name}` must have {sum(sizes)} rows, as the input. Received: "
                f"{len(values)} rows"
            )
    # Copies, because a view would keep the answers of the other requests in memory.
    return [
        {name: values[stop - size : stop].copy() for name, values in outputs.items()}
        for size, stop in zip(sizes, itertools.accumulate(sizes))
    ]


def _answer(item, rows, outputs):
    """Adds the outputs of the next rows; the last ones complete the answer."""
    item.parts[rows.start] = outputs
    if rows.stop < item.rows or item.answer.done():
        return
    if item.signature.joins_rows:
        whole = {name: _stacked([part[name] for part in item.parts.values()]) for name in outputs}
        outputs = item.signature.trimmed(whole)
    item.answer.set_result(outputs)


def _stacked(arrays):
    """Concatenates the rows of several batches after padding them to the same width."""
    first = arrays[0]
    if len(arrays) == 1:
        return first
    if first.ndim > 1:
        width = max(array.shape[1] for array in arrays)
        empty = b"" if first.dtype == object else 0
        rest = [(0, 0)] * (first.ndim - 2)
        arrays = [
            np.pad(array, [(0, 0), (0, width - array.shape[1]), *rest], constant_values=empty)
            if array.shape[1] < width
            else array
            for array in arrays
        ]
    return np.concatenate(arrays)


def _tokens(arrays, rows):
    """Returns the estimated number of tokens of each row, from its texts or its ids."""
    texts = [array for array in arrays.values() if array.dtype == object]
    if not texts:
        return [max(1, *(array[0].size for array in arrays.values()))] * rows
    tokens = [_SPECIAL_TOKENS] * rows
    for array in texts:
        for row, value in enumerate(array.reshape(rows, -1).tolist()):
            tokens[row] += sum(len(text) for text in value) // _BYTES_PER_TOKEN + 1
    return tokens
