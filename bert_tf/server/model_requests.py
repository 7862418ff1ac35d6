"""What REST and gRPC do alike: finds the version, checks a request and computes it."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np

from bert_tf.server.described_inputs import check_described_inputs
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.limits import Hold, Limits
from bert_tf.server.model_versions import LoadedVersion, ModelVersions, VersionState
from bert_tf.server.served_model import ServedModel
from bert_tf.server.signatures import DEFAULT_SIGNATURE, Signature, bytes_of

SMALL = 1 << 12  # bytes; larger messages are converted in a thread
LARGE_BODY = 1 << 16  # bytes; larger ones are decoded one at a time


class CheckedRequest(NamedTuple):
    """The inputs of a computation, within the limits."""

    signature: Signature
    arrays: Mapping[str, np.ndarray]
    rows: int
    size: int  # bytes of the arrays
    answer_size: int  # bytes of the outputs, at least


class ModelRequests:
    """The requests to the versions of a model, within the limits of the server."""

    def __init__(self, versions: ModelVersions, limits: Limits):
        self.versions = versions
        self.limits = limits
        # Few threads, because the event loop must wait for its turn among them. Large bodies are
        # decoded one at a time: as Python objects they need up to 10 times as much memory, which is
        # not counted.
        self._decoder = concurrent.futures.ThreadPoolExecutor(1, "decode")
        self._converter = concurrent.futures.ThreadPoolExecutor(1, "convert")

    def version_of(
        self, model: str | None, number: int | None = None, label: str | None = None
    ) -> contextlib.AbstractContextManager[LoadedVersion]:
        """Returns a context manager of a version, by default the current one of the only model.

        Raises:
            RequestError: If there is no such model, version or label.
        """
        if model not in (None, self.versions.name):
            message = f"Servable not found for request: Latest({model})"
            raise RequestError(HTTPStatus.NOT_FOUND, message)
        return self.versions.use(self.versions.number_of(number, label))

    def states_of(
        self, model: str, number: int | None = None, label: str | None = None
    ) -> list[tuple[int, VersionState]]:
        """Returns the versions of a model, or one of them, and their states; the newest first.

        Raises:
            RequestError: If there is none.
        """
        known = {}
        if model == self.versions.name:
            known, number = self.versions.states, self.versions.number_of(number, label)
        states = {n: state for n, state in known.items() if number in (None, n)}
        if not states:
            wanted = "any versions" if number is None else f"version {number}"
            message = f"Could not find {wanted} of model {model}"
            raise RequestError(HTTPStatus.NOT_FOUND, message)
        return sorted(states.items(), reverse=True)

    def checked(
        self, model: ServedModel, signature: Signature, arrays: Mapping[str, np.ndarray]
    ) -> CheckedRequest:
        """Checks the arrays of all inputs of a signature, whose dtypes and shapes match.

        Raises:
            RequestError: If they are not as described, or above a limit.
        """
        rows = signature.checked_rows(arrays)
        self.check_rows(rows)
        texts = (array for array in arrays.values() if array.dtype == object)
        self.check_texts(sum(len(text) for array in texts for text in array.flat))
        check_described_inputs(model.description, signature, arrays)
        answer_size = signature.least_answer_bytes(arrays)
        self._check_answer(answer_size)
        return CheckedRequest(signature, arrays, rows, bytes_of(arrays), answer_size)

    def check_rows(self, rows: int) -> None:
        """Refuses a request with too many rows."""
        if rows > self.limits.max_rows:
            most = self.limits.max_rows
            message = f"The inputs must have at most {most} rows. Received: {rows} rows."
            raise invalid(message, flag="max_rows")

    def check_texts(self, size: int) -> None:
        """Refuses a request whose texts, each counted in every row, exceed the largest body."""
        if size > self.limits.max_body:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The texts of all rows must have at most {self.limits.max_body} bytes together; "
                "a query counts once for each document, and a context for each example. Received: "
                f"{size} bytes. Send shorter texts, or fewer.",
                flag="max_body_bytes",
            )

    def _check_answer(self, size):
        if size > self.limits.max_answer:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The answer must have at most {self.limits.max_answer} bytes of values. "
                f"Received: {size} bytes. Send fewer rows at a time, or shorter ones.",
                flag="max_answer_bytes",
            )

    async def compute(
        self, version: LoadedVersion, request: CheckedRequest, hold: Hold
    ) -> tuple[dict[str, np.ndarray], int]:
        """Computes a request in the queue of its version; returns the outputs and their bytes."""
        hold(request.size + request.answer_size)
        signature, arrays, rows, *_ = request
        del request
        running = version.batcher.run(signature, arrays, rows)
        del arrays
        outputs = await running
        size = sum(array.nbytes for array in outputs.values())
        held = await self.converted(size, bytes_of, outputs)
        self._check_answer(held)
        hold(held)
        return outputs, held

    async def decoded(self, size: int, function: Callable, *args) -> Any:
        """Calls a function that decodes a body of this size, in a thread if it is not small."""
        executor = self._decoder if size > LARGE_BODY else self._converter
        return await _aside(executor, size, function, *args)

    async def converted(self, size: int, function: Callable, *args) -> Any:
        """Calls a function that writes an answer of this size, in a thread if it is not small."""
        return await _aside(self._converter, size, function, *args)


def find_signature(model: ServedModel, name: str) -> Signature:
    """Returns a signature of a model, for an empty name the default one.

    Raises:
        RequestError: If there is no such signature.
    """
    name = name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        raise invalid(
            f'Serving signature name: "{name[:100]}" not found in signature def. Expected: '
            f"{', '.join(model.signatures)}"
        )
    return model.signatures[name]


async def _aside(executor, size, function, *args):
    if size <= SMALL:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(executor, function, *args)
