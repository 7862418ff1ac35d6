"""TensorFlow Serving's REST paths for one model.

    GET  /v1/models/NAME[/versions/V]             the versions and their states
    GET  /v1/models/NAME[/versions/V]/metadata    the signatures
    POST /v1/models/NAME[/versions/V]:predict     {"instances": [...]} or {"inputs": ...}
    POST /v1/models/NAME[/versions/V]:classify    {"examples": [...]}, also `:regress`

and the paths of `retrieval_forms`. `/labels/LABEL` may replace `/versions/V`. An error is
`{"error": message}` with the HTTP status that TensorFlow Serving uses for it.

Reference: tensorflow_serving/model_servers/http_rest_api_util.cc and http_rest_api_handler.cc.
"""

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
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.example_requests import (
    CLASSIFY,
    REGRESS,
    example_arrays,
    find_example_signature,
    json_parts,
    read_json_examples,
)
from bert_tf.server.json_bodies import parse_object
from bert_tf.server.json_tensors import answer_parts, arrays_of, parse_predict, signature_name
from bert_tf.server.limits import Hold, read_body
from bert_tf.server.model_requests import CheckedRequest, ModelRequests, find_signature
from bert_tf.server.model_versions import LoadedVersion
from bert_tf.server.signatures import DEFAULT_SIGNATURE

PREFIX = "/v1/"
_VERSION = r"(?:/versions/(\d+)|/labels/([^/:]+))?"
_POST = rf"(?ai)/v1/models/([^/:]+){_VERSION}:(classify|regress|predict)"
_GET = rf"(?ai)/v1/models(?:/([^/:]+))?{_VERSION}(?:/(metadata))?"
_LARGEST_VERSION = 2**63 - 1
_LARGE_ANSWER = 1 << 16  # bytes of values; larger ones are sent in parts
_PART = 1 << 16  # characters that a part has at least, because each is made in a thread


class RequestTarget(NamedTuple):
    """The target of a request: a model, or one of its versions."""

    action: str  # predict, classify, regress, metadata, status, models, or of `retrieval_forms`
    model: str | None  # None for the one that is served
    version: int | None
    label: str | None = None


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
    # A number has at most 20 digits: Python refuses to convert thousands of them.
    number = None if version is None else int(version.lstrip("0")[:20] or "0")
    if number is not None and number > _LARGEST_VERSION:
        raise invalid(f"Failed to convert version: {version} to numeric.")
    label = None if label is None else urllib.parse.unquote(label)
    return RequestTarget((action or "status").lower(), urllib.parse.unquote(name), number, label)


class _Request(NamedTuple):
    """A request that was read and checked."""

    checked: CheckedRequest
    parts_of: Callable[[Mapping[str, np.ndarray]], Iterator[str]]  # writes the answer


class RestApi:
    """Answers requests to the paths above."""

    def __init__(self, requests: ModelRequests):
        self._requests = requests
        self._versions, self._limits = requests.versions, requests.limits
        self._started = int(time.time())

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
        with self._version_of(target) as version:
            body_size = len(body)
            read = self._requests.decoded(body_size, self._read, target.action, body, version)
            del body
            checked, parts_of = await read
            computed = self._requests.compute(version, checked, hold)
            del checked
            outputs, held = await computed
            parts = await self._requests.converted(held, parts_of, outputs)
            if held > _LARGE_ANSWER:
                return self._in_threads(parts)
            # An answer may repeat the texts of its request.
            text = await self._requests.converted(held + body_size, "".join, parts)
            hold(len(text))
            return text

    def _read(self, action, body, version: LoadedVersion) -> _Request:
        form, model = None, version.model
        if action in (CLASSIFY, REGRESS):
            document = parse_object(body, self._limits.max_elements)
            signature = find_example_signature(model, signature_name(document), action)
            examples = read_json_examples(document, self._limits.max_text_length)
            arrays = example_arrays(self._requests, signature, *examples)
            parts_of = functools.partial(json_parts, action, model.description.get("labels", []))
            return _Request(self._requests.checked(model, signature, arrays), parts_of)
        if action == "predict":
            parsed = parse_predict(body, self._limits.max_elements)
            parts_of = functools.partial(answer_parts, parsed.format)
        else:
            document = parse_object(body, self._limits.max_elements)
            form = retrieval_forms.read_form(action, document, model, self._versions.name)
            parsed, parts_of = form.request, form.parts
        signature = find_signature(model, parsed.signature_name)
        names = None if form is None else form.names
        arrays = arrays_of(parsed, signature, self._limits.max_text_length, names)
        if form is not None:
            arrays = form.completed(arrays)
        # The result lacks the parsed request, whose Python objects take much more memory than it.
        return _Request(self._requests.checked(model, signature, arrays), parts_of)

    async def _in_threads(self, parts):
        while part := await self._requests.converted(math.inf, _next_part, parts):
            yield part

    def _status(self, target):
        states = self._requests.states_of(target.model, target.version, target.label)
        statuses = [
            {
                "version": str(number),
                "state": state.state,
                "status": {
                    "error_code": "UNKNOWN" if state.error else "OK",
                    "error_message": state.error,
                },
            }
            for number, state in states
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
        return self._requests.version_of(target.model, target.version, target.label)


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
