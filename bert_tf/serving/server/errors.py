"""Errors of a request, with TensorFlow's status codes and the HTTP status each becomes."""

import re
from typing import NamedTuple

import tensorflow as tf


class Code(NamedTuple):
    """A status: TensorFlow's name of it and the HTTP status."""

    name: str
    http: int


# tensorflow_serving/model_servers/http_server.cc, ToHTTPStatusCode
INVALID_ARGUMENT = Code("INVALID_ARGUMENT", 400)
DEADLINE_EXCEEDED = Code("DEADLINE_EXCEEDED", 504)
NOT_FOUND = Code("NOT_FOUND", 404)
RESOURCE_EXHAUSTED = Code("RESOURCE_EXHAUSTED", 429)
FAILED_PRECONDITION = Code("FAILED_PRECONDITION", 400)
OUT_OF_RANGE = Code("OUT_OF_RANGE", 400)
UNIMPLEMENTED = Code("UNIMPLEMENTED", 501)
UNAVAILABLE = Code("UNAVAILABLE", 503)
INTERNAL = Code("INTERNAL", 500)
# HTTP's own, which TensorFlow Serving leaves to its HTTP library.
REQUEST_TIMEOUT = Code("REQUEST_TIMEOUT", 408)
BODY_TOO_LARGE = Code("BODY_TOO_LARGE", 413)
ANSWER_TOO_LARGE = Code("ANSWER_TOO_LARGE", 413)

_OF_TENSORFLOW = {
    tf.errors.InvalidArgumentError: INVALID_ARGUMENT,
    tf.errors.FailedPreconditionError: FAILED_PRECONDITION,
    tf.errors.OutOfRangeError: OUT_OF_RANGE,
    tf.errors.NotFoundError: NOT_FOUND,
    tf.errors.ResourceExhaustedError: RESOURCE_EXHAUSTED,
    tf.errors.UnimplementedError: UNIMPLEMENTED,
    tf.errors.UnavailableError: UNAVAILABLE,
    tf.errors.DeadlineExceededError: DEADLINE_EXCEEDED,
}


# Where in the graph an error arose, which says nothing to a client.
_NODES = re.compile(
    r"Graph execution error:\s*|Detected at node \S+ defined at \(most recent call last\):\s*"
    r"|<stack traces unavailable>\s*|\s*\[\[.*?\]\]|\{\{\w*node [^}]*\}\}\s*|\s*\[Op:[^]]*\]",
    re.DOTALL,
)
_LONGEST_MESSAGE = 1000  # characters; some of TensorFlow's repeat the input


class RequestError(Exception):
    """Why a request is not answered.

    Args:
        code: The status.
        message: What was expected and received, for whoever sent the request.
    """

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> RequestError:
    """The error of a request that cannot be understood."""
    return RequestError(INVALID_ARGUMENT, message)


def of_computation(error: Exception) -> RequestError:
    """What an exception out of the model means for the request."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, tf.errors.OpError):
        code = _OF_TENSORFLOW.get(type(error), INTERNAL)
        return RequestError(code, _without_nodes(error.message))
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow's, of an error whose message repeats what came in and is no text. Its kind is
        # lost; only the input can have brought such bytes.
        return invalid(_without_nodes(error.object.decode("utf-8", "replace")))
    if isinstance(error, MemoryError):
        return RequestError(RESOURCE_EXHAUSTED, "The request does not fit into memory.")
    return RequestError(INTERNAL, f"{type(error).__name__}: {error}")


def _without_nodes(message):
    return _NODES.sub("", message)[:_LONGEST_MESSAGE]
