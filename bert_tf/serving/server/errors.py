"""Errors of requests, with TensorFlow's status codes and their HTTP status."""

import re
from typing import NamedTuple

import tensorflow as tf


class Code(NamedTuple):
    """A status: TensorFlow's name for it and the HTTP status."""

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
# HTTP errors that TensorFlow Serving leaves to its HTTP library.
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


# The place of an error in the graph, which does not help a client.
_NODES = re.compile(
    r"Graph execution error:\s*|Detected at node \S+ defined at \(most recent call last\):\s*"
    r"|<stack traces unavailable>\s*|\s*\[\[.*?\]\]|\{\{\w*node [^}]*\}\}\s*|\s*\[Op:[^]]*\]",
    re.DOTALL,
)
_MAX_MESSAGE_LENGTH = 1000  # characters; some of TensorFlow's messages repeat the input


class RequestError(Exception):
    """A request cannot be answered.

    Args:
        code: The status.
        message: What was expected and received, for the client.
    """

    def __init__(self, code: Code, message: str):
        super().__init__(message)
        self.code, self.message = code, message


def invalid(message: str) -> RequestError:
    """The error of an invalid request."""
    return RequestError(INVALID_ARGUMENT, message)


def of_computation(error: Exception) -> RequestError:
    """The error of a request for an exception that the model raised."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, tf.errors.OpError):
        code = _OF_TENSORFLOW.get(type(error), INTERNAL)
        return RequestError(code, _without_nodes(error.message))
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow raises this for an error whose message repeats input that is not text. The
        # error's type is lost, but only the input can have caused it.
        return invalid(_without_nodes(error.object.decode("utf-8", "replace")))
    if isinstance(error, MemoryError):
        return RequestError(RESOURCE_EXHAUSTED, "The request needs more memory than is available.")
    return RequestError(INTERNAL, f"{type(error).__name__}: {error}")


def _without_nodes(message):
    return _NODES.sub("", message)[:_MAX_MESSAGE_LENGTH]
