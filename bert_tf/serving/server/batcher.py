"""Dynamic batching: requests that wait are computed together.

A batch starts as soon as the model is free, with as many of the waiting rows as the token budget
holds, so batches grow with the load and a lone request waits for nothing; `batch_wait` lets it
wait for company. Rows are taken from the requests in turn, one from each, so that a request of a
thousand rows and one of one row are served side by side. A request that waits past its deadline is
dropped.
"""

import asyncio
import collections
import concurrent.futures
import dataclasses
import time
from collections.abc import Mapping

import numpy as np

from bert_tf.serving.server.errors import (
    BODY_TOO_LARGE,
    DEADLINE_EXCEEDED,
    RESOURCE_EXHAUSTED,
    RequestError,
    invalid,
    of_computation,
)
from bert_tf.serving.server.metrics import Metrics
from bert_tf.serving.server.served_model import ServedModel
from bert_tf.serving.server.signatures import Signature

TOKEN_BUDGET = 4096  # as `predict`'s
# English text has 4 to 5 bytes a WordPiece, Chinese 3: enough to plan batches by.
_BYTES_PER_TOKEN = 4
_SPECIAL_TOKENS = 2


@dataclasses.dataclass(eq=False)
class _Waiting:
    """A request in the queue; rows before `next_row` have been given to batches."""

    signature: Signature
    arrays: Mapping[str, np.ndarray]
    tokens: list[int]
    key: tuple
    arrived: float
    answer: asyncio.Future
    next_row: int = 0
    parts: list = dataclasses.field(default_factory=list)

    @property
    def rows(self) -> int:
        return len(self.tokens)


class Batcher:
    """The queue in front of a model. Everything but the computation runs on the event loop.

    Args:
        model: What computes.
        token_budget: Tokens of a batch, estimated from the texts' bytes.
        batch_wait: Seconds that a request waits for others to fill its batch.
        max_waiting: Requests in the queue; further ones are refused.
        request_timeout: Seconds that a request waits for its answer.
        metrics: Where batches are counted.
        max_tokens: Tokens of one row's texts; the model's memory grows with them.
    """

    def __init__(
        self,
        model: ServedModel,
        token_budget: int,
        batch_wait: float,
        max_waiting: int,
        request_timeout: float,
        metrics: Metrics,
        max_tokens: int | None = None,
    ):
        self._max_tokens = max_tokens
        self._model = model
        self._token_budget = token_budget
        self._batch_wait = batch_wait
        self._max_waiting = max_waiting
        self._request_timeout = request_timeout
        self._metrics = metrics
        self._queue: collections.deque[_Waiting] = collections.deque()
        self._arrival = asyncio.Event()
        self._executor = concurrent.futures.ThreadPoolExecutor(1, "batch")
        self._worker = asyncio.get_running_loop().create_task(self._work())

    async def run(
        self, signature: Signature, arrays: Mapping[str, np.ndarray], rows: int
    ) -> dict[str, np.ndarray]:
        """The outputs for one request.

        Args:
            signature: One of the model's.
            arrays: Of every input, with the same number of rows.
            rows: That number.

        Raises:
            RequestError: If the queue is full, the deadline passes or the computation fails.
        """
        if len(self._queue) >= self._max_waiting:
            raise RequestError(
                RESOURCE_EXHAUSTED,
                f"{len(self._queue)} requests are waiting already. Try again later.",
            )
        request = self._request(signature, arrays, rows)
        self._queue.append(request)
        self._arrival.set()
        try:
            return await asyncio.wait_for(request.answer, self._request_timeout)
        except asyncio.TimeoutError:
            raise RequestError(
                DEADLINE_EXCEEDED, f"No answer within {self._request_timeout:g} seconds."
            ) from None
        finally:  # also if the client has gone
            if request in self._queue:
                self._queue.remove(request)

    @property
    def waiting(self) -> int:
        """How many requests have rows that no batch has taken."""
        return len(self._queue)

    async def close(self) -> None:
        """Ends the worker; no request may be waiting."""
        self._worker.cancel()
        await asyncio.gather(self._worker, return_exceptions=True)
        self._executor.shutdown(wait=False)  # its last batch is of requests that have gone
        self._model = None

    def _request(self, signature, arrays, rows):
        tokens = _tokens(arrays, rows) if signature.has_rows else [0]
        has_texts = any(array.dtype == object for array in arrays.values())
        if self._max_tokens is not None and has_texts and max(tokens) > self._max_tokens:
            raise RequestError(
                BODY_TOO_LARGE,
                f"Texts of at most {self._max_tokens} tokens together in a row were expected. "
                f"Received: about {max(tokens)} in row {np.argmax(tokens)}. Send parts of them.",
            )
        key = (signature.name,)
        if signature.joins_rows:
            key += tuple(array.shape[1:] for array in arrays.values())
        else:
            if len(tokens) > 1 and sum(tokens) > self._token_budget:
                raise invalid(
                    f"The answers of signature {signature.name} depend on the rows beside them, so "
                    f"a request is one batch, of at most {self._token_budget} tokens. Received: "
                    f"about {sum(tokens)} tokens in {rows} rows. Send fewer rows at a time."
                )
            key += (object(),)  # with no other
        answer = asyncio.get_running_loop().create_future()
        return _Waiting(signature, arrays, tokens, key, time.monotonic(), answer)

    async def _work(self):
        while True:
            self._arrival.clear()
            if not self._queue:
                await self._arrival.wait()
                continue
            await self._wait_for_company()
            batch = self._next_batch()
            if batch:
                await self._compute(batch)

    async def _wait_for_company(self):
        """Waits until the oldest request has waited `batch_wait`, or the budget is reached."""
        while self._queue:
            left = self._queue[0].arrived + self._batch_wait - time.monotonic()
            waiting = sum(sum(item.tokens[item.next_row :]) for item in self._queue)
            if left <= 0 or waiting >= self._token_budget:
                return
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), left)
            except asyncio.TimeoutError:
                return

    def _next_batch(self) -> list[tuple[_Waiting, slice]]:
        """Takes rows off the queue: of each request its next ones."""
        if not self._queue:
            return []
        oldest = self._queue[0]
        if not oldest.signature.joins_rows:
            self._queue.popleft()
            return [(oldest, slice(0, oldest.rows))]
        members = collections.deque(item for item in self._queue if item.key == oldest.key)
        starts = {}
        tokens = longest = rows = 0
        while members:
            item = members.popleft()
            row = item.tokens[item.next_row]
            longest = max(longest, row)
            tokens += row
            rows += 1
            cost = tokens if self._model.padding_free else longest * rows
            if starts and cost > self._token_budget:
                break
            starts.setdefault(item, item.next_row)
            item.next_row += 1
            if item.next_row < item.rows:
                members.append(item)
        batch = [(item, slice(start, item.next_row)) for item, start in starts.items()]
        for item, _ in batch:  # who has rows left waits behind the others
            self._queue.remove(item)
            if item.next_row < item.rows:
                self._queue.append(item)
        return batch

    async def _compute(self, batch):
        try:
            await self._answer_all(batch)
        except Exception as error:
            if len(batch) == 1:
                _fail(batch[0][0], of_computation(error))
                return
            for part in batch:  # whose fault it is shows when each is computed by itself
                await self._compute([part])

    async def _answer_all(self, batch):
        signature = batch[0][0].signature
        joined = {
            name: np.concatenate([item.arrays[name][rows] for item, rows in batch])
            if signature.joins_rows
            else batch[0][0].arrays[name]
            for name in signature.inputs
        }
        sizes = [rows.stop - rows.start for _, rows in batch]
        tokens = sum(sum(item.tokens[rows]) for item, rows in batch)
        started = time.monotonic()
        self._metrics.count_batch(
            sum(sizes), tokens, started - min(item.arrived for item, _ in batch)
        )
        outputs = await asyncio.get_running_loop().run_in_executor(
            self._executor, self._checked_run, signature, joined, sum(sizes)
        )
        self._metrics.batch_seconds.observe(time.monotonic() - started)
        start = 0
        for (item, rows), size in zip(batch, sizes):
            part = outputs
            if signature.joins_rows:
                # A copy: a part would keep the others' answers in memory for as long as its own.
                part = {
                    name: values[start : start + size].copy() for name, values in outputs.items()
                }
            start += size
            _answer(item, rows, part)

    def _checked_run(self, signature, arrays, rows):
        outputs = self._model.run(signature, arrays)
        if signature.joins_rows:
            for name, values in outputs.items():
                if len(values) != rows:
                    raise ValueError(f"output {name} has {len(values)} rows, the input {rows}")
        return outputs


def _answer(item, rows, outputs):
    """Adds a part; the last one makes the answer."""
    item.parts.append((rows.start, outputs))
    done = sum(len(next(iter(part.values()))) for _, part in item.parts)
    if item.answer.done():
        return
    if not item.signature.joins_rows:
        item.answer.set_result(outputs)
    elif done == item.rows:
        item.answer.set_result(_joined(item))


def _joined(item):
    parts = [part for _, part in sorted(item.parts, key=lambda pair: pair[0])]
    whole = {name: _stacked([part[name] for part in parts]) for name in item.signature.outputs}
    return item.signature.rows(whole, slice(None))


def _stacked(arrays):
    """Rows of several batches below each other; what is narrower gets the wider one's padding."""
    if len(arrays) == 1:
        return arrays[0]
    width = max(array.shape[1] if array.ndim > 1 else 0 for array in arrays)
    padded = []
    for array in arrays:
        if array.ndim > 1 and array.shape[1] < width:
            empty = b"" if array.dtype == object else 0
            missing = [(0, 0), (0, width - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
            array = np.pad(array, missing, constant_values=empty)
        padded.append(array)
    return np.concatenate(padded)


def _fail(item, error):
    if not item.answer.done():
        item.answer.set_exception(error)


def _tokens(arrays, rows):
    """About how many tokens each row has: of its texts, or of its ids."""
    tokens = [_SPECIAL_TOKENS] * rows
    texts = [array for array in arrays.values() if array.dtype == object]
    for array in texts:
        for row, value in enumerate(array.reshape(rows, -1).tolist()):
            tokens[row] += sum(len(text) for text in value) // _BYTES_PER_TOKEN + 1
    if not texts:
        size = max(array[0].size for array in arrays.values())
        return [max(1, size)] * rows
    return tokens
