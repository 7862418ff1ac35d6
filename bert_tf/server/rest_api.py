"""TensorFlow Serving's REST paths for one model.

    GET  /v1/models/NAME[/versions/V]             the versions and their states
    GET  /v1/models/NAME[/versions/V]/metadata    the signatures
    POST /v1/models/NAME[/versions/V]:predict     {"instances": [...]} or {"inputs": ...}

and the paths of `retrieval_forms`. An error is `{"error": message}` with the HTTP status that
TensorFlow Serving uses for it.

Reference: tensorflow_serving/model_servers/http_rest_api_util.cc and http_rest_api_handler.cc.
"""

import asyncio
import concurrent.futures
import functools
import json
import math
import re
import time
import urllib.parse
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np

from bert_tf.server import model_versions, retrieval_forms
from bert_tf.server.described_inputs import check_described_inputs
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.json_bodies import parse_object
from bert_tf.server.json_tensors import answer_parts, arrays_of, parse_predict
from bert_tf.server.limits import Hold, Limits, read_body
from bert_tf.server.model_versions import LoadedVersion, ModelVersions
from bert_tf.server.signatures import DEFAULT_SIGNATURE, Signature, bytes_of

PREFIX = "/v1/"
_VERSION = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
_POST = rf"(?ai)/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)"
_GET = rf"(?ai)/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?"
_LARGEST_VERSION = 2**63 - 1
_SMALL = 1 << 12  # bytes; larger bodies and answers are converted in a thread
_LARGE_BODY = 1 << 16  # bytes; larger ones are decoded one at a time
_LARGE_ANSWER = 1 << 16  # bytes of values; larger ones are sent in parts
_PART = 1 << 16  # characters that a part has at least, because each is made in a thread


class RequestTarget(NamedTuple):
    """The target of a request: a model, or one of its versions."""

    action: str  # predict, classify, regress, metadata, status, models, or of `retrieval_forms`
    model: str | None  # None for the one that is served
    version: int | None


def parse_path(method: str, path: str) -> RequestTarget:
    """Parses the path of a request, percent-encoded and without the query.

    Raises:
        RequestError: If the path is not valid.
    """
    if path in retrieval_forms.PATHS:
        if method != "POST":
            message = f"Method Not Allowed: {method} {path}"
            status = HTTPStatus.METHOD_NOT_ALLOWED
            raise RequestError(status, message, headers={"Allow": "POST"})
        return RequestTarget(retrieval_forms.PATHS[path], None, None)
    if method in ("GET", "HEAD") and path == retrieval_forms.MODELS_PATH:
        return RequestTarget("models", None, None)
    pattern = {"POST": _POST, "GET": _GET, "HEAD": _GET}.get(method)
    match = re.fullmatch(pattern, path) if pattern else None
    if match is None:
        raise invalid(f"Malformed request: {method} {path}")
    name, version, label, action = match.groups()
    if not name:
        raise invalid("Missing model name in request.")
    if label:
        raise invalid(f"Unrecognized servable version label: {urllib.parse.unquote(label)}")
    # A number has at most 20 digits: Python refuses to convert thousands of them.
    number = None if version is None else int(version.lstrip("0")[:20] or "0")
    if number is not None and number > _LARGEST_VERSION:
        raise invalid(f"Failed to convert version: {version} to numeric.")
    return RequestTarget((action or "status").lower(), urllib.parse.unquote(name), number)


class _Request(NamedTuple):
    """A request that was read and checked."""

    signature: Signature
    arrays: dict[str, np.ndarray]
    rows: int
    size: int  # bytes of the arrays
    answer_size: int  # bytes of the outputs, at least
    parts_of: Callable[[Mapping[str, np.ndarray]], Iterator[str]]  # writes the answer


class RestApi:
    """Answers requests to the paths above."""

    def __init__(self, versions: ModelVersions, limits: Limits):
        self._versions = versions
        self._limits = limits
        self._started = int(time.time())
        # Few threads, because the event loop must wait for its turn among them. Large bodies are
        # decoded one at a time: as Python objects they need up to 10 times as much memory, which is
        # not counted.
        self._decoder = concurrent.futures.ThreadPoolExecutor(1, "decode")
        self._converter = concurrent.futures.ThreadPoolExecutor(1, "convert")

    async def answer(
        self, target: RequestTarget, request, hold: Hold
    ) -> str | AsyncIterator[bytes]:
        """Answers an aiohttp request as JSON, a large answer in parts, or raises a `RequestError`.

        `hold` counts the memory of the request; see `Memory.share`.
        """
        if target.action == "models":
            models = retrieval_forms.list_of_models(self._versions.name, self._started)
            return write_json_text(models)
        if target.action == "status":
            return self._status(target)
        if target.action == "metadata":
            return await self._metadata(target)
        # The body is read before a request is refused; otherwise a client that is still sending it
        # would not receive the error in time.
        body = await read_body(request, hold, self._limits)
        if target.action in ("classify", "regress"):
            message = f"The method must be predict. Received: {target.action}"
            raise RequestError(HTTPStatus.NOT_IMPLEMENTED, message)
        with self._version_of(target) as version:
            body_size = len(body)
            executor = self._decoder if body_size > _LARGE_BODY else self._converter
            read = _aside(executor, body_size, self._read, target.action, body, version)
            del body
            request = await read
            hold(request.size + request.answer_size)
            parts_of = request.parts_of
            outputs = await version.batcher.run(request.signature, request.arrays, request.rows)
            del request
            size = sum(array.nbytes for array in outputs.values())
            held = await _aside(self._converter, size, bytes_of, outputs)
            self._check_answer(held)
            hold(held)
            parts = parts_of(outputs)
            if held > _LARGE_ANSWER:
                return self._in_threads(parts)
            # An answer may repeat the texts of its request.
            text = await _aside(self._converter, held + body_size, "".join, parts)
            hold(len(text))
            return text

    def _read(self, action, body, version: LoadedVersion) -> _Request:
        form = None
        if action == "predict":
            parsed = parse_predict(body, self._limits.max_elements)
            parts_of = functools.partial(answer_parts, parsed.format)
        else:
            document = parse_object(body, self._limits.max_elements)
            form = retrieval_forms.read_form(action, document, version.model, self._versions.name)
            parsed, parts_of = form.request, form.parts
        signature = version.model.signatures.get(parsed.signature_name)
        if signature is None:
            raise invalid(
                f'Serving signature name: "{parsed.signature_name[:100]}" not found in signature '
                f"def. Expected: {', '.join(version.model.signatures)}"
            )
        names = None if form is None else form.names
        arrays = arrays_of(parsed, signature, self._limits.max_text_length, names)
        if form is not None:
            arrays = form.completed(arrays)
        rows = signature.checked_rows(arrays)
        if rows > self._limits.max_rows:
            most = self._limits.max_rows
            message = f"The inputs must have at most {most} rows. Received: {rows} rows."
            raise invalid(message, flag="max_rows")
        self._check_texts(arrays)
        check_described_inputs(version.model.description, signature, arrays)
        answer_size = signature.least_answer_bytes(arrays)
        self._check_answer(answer_size)
        # The result lacks the parsed request, whose Python objects take much more memory than it.
        return _Request(signature, arrays, rows, bytes_of(arrays), answer_size, parts_of)

    def _check_texts(self, arrays):
        """Refuses a request whose texts, each counted in every row, exceed the largest body."""
        texts = (array for array in arrays.values() if array.dtype == object)
        size = sum(len(text) for array in texts for text in array.flat)
        if size > self._limits.max_body:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The texts of all rows must have at most {self._limits.max_body} bytes together; "
                f"a query counts once for each document. Received: {size} bytes. Send a shorter "
                "query, or fewer documents.",
                flag="max_body_bytes",
            )

    def _check_answer(self, size):
        if size > self._limits.max_answer:
            raise RequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"The answer must have at most {self._limits.max_answer} bytes of values. "
                f"Received: {size} bytes. Send fewer rows at a time, or shorter ones.",
                flag="max_answer_bytes",
            )

    async def _in_threads(self, parts):
        while part := await _aside(self._converter, math.inf, _next_part, parts):
            yield part

    def _status(self, target):
        known = self._versions.states if target.model == self._versions.name else {}
        states = {n: state for n, state in known.items() if target.version in (None, n)}
        if not states:
            wanted = "any versions" if target.version is None else f"version {target.version}"
            message = f"Could not find {wanted} of model {target.model}"
            raise RequestError(HTTPStatus.NOT_FOUND, message)
        statuses = [
            {
                "version": str(number),
                "state": state.state,
                "status": {
                    "error_code": "UNKNOWN" if state.error else "OK",
                    "error_message": state.error,
                },
            }
            for number, state in sorted(states.items(), reverse=True)
        ]
        return write_json_text({"model_version_status": statuses})

    async def _metadata(self, target):
        with self._version_of(target) as version:
            number = str(version.number)
            model = {"name": target.model, "signature_name": "", "version": number}
            signatures = {"signature_def": {"signature_def": version.model.signature_def}}
            return write_json_text({"model_spec": model, "metadata": signatures})

    def page_facts(self) -> dict[str, Any]:
        """Returns the facts for the web page: the model, its version, inputs and labels."""
        version = self._versions.current
        model = version.model if version else None
        signature = model.signatures.get(DEFAULT_SIGNATURE) if model else None
        inputs = signature.inputs if signature else {}
        texts = [name for name, spec in inputs.items() if spec.is_text and spec.shape == (None,)]
        return {
            "model": self._versions.name,
            "version": version.number if version else None,
            "state": model_versions.AVAILABLE if version else model_versions.LOADING,
            "inputs": texts,
            "other_inputs": [name for name in inputs if name not in texts],
            "labels": model.description.get("labels", []) if model else [],
        }

    def _version_of(self, target):
        if target.model not in (None, self._versions.name):
            message = f"Servable not found for request: Latest({target.model})"
            raise RequestError(HTTPStatus.NOT_FOUND, message)
        return self._versions.use(target.version)


async def _aside(executor, size, function, *args):
    """Calls a function, in a thread if it has many bytes to work on."""
    if size <= _SMALL:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(executor, function, *args)


def _next_part(parts):
    """Returns the next parts together; empty at the end."""
    found, size = [], 0
    while size < _PART and (part := next(parts, None)) is not None:
        found.append(part)
        size += len(part)
    return "".join(found).encode()


def write_json_text(values: Mapping[str, Any]) -> str:
    """Returns the body of an answer or an error."""
    text = json.dumps(values, ensure_ascii=False) + "\n"
    # A message may repeat a lone surrogate of the request, which has no UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")
