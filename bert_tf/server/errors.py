"""Errors of requests, with the HTTP status that TensorFlow Serving answers them with."""

import errno
import re
from collections.abc import Mapping
from http import HTTPStatus

import tensorflow as tf

# tensorflow_serving/model_servers/http_server.cc, ToHTTPStatusCode
_OF_TENSORFLOW = {
    tf.errors.InvalidArgumentError: HTTPStatus.BAD_REQUEST,
    tf.errors.FailedPreconditionError: HTTPStatus.BAD_REQUEST,
    tf.errors.OutOfRangeError: HTTPStatus.BAD_REQUEST,
    tf.errors.NotFoundError: HTTPStatus.NOT_FOUND,
    tf.errors.ResourceExhaustedError: HTTPStatus.TOO_MANY_REQUESTS,
    tf.errors.UnimplementedError: HTTPStatus.NOT_IMPLEMENTED,
    tf.errors.UnavailableError: HTTPStatus.SERVICE_UNAVAILABLE,
    tf.errors.DeadlineExceededError: HTTPStatus.GATEWAY_TIMEOUT,
}
_TRY_AGAIN = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
_OF_THE_SYSTEM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
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
        status: The HTTP status.
        message: What was expected and received, for the client.
        flag: The flag of `bert-tf serve` that allows more.
        headers: Headers of the answer.
    """

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        flag: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(message)
        self.status, self.message, self.flag = status, message, flag
        self.headers = dict(headers or {})
        if status in _TRY_AGAIN:
            self.headers["Retry-After"] = "1"


def invalid(message: str, *, flag: str | None = None) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, message, flag=flag)


def of_computation(error: Exception) -> RequestError:
    """Returns the error of a request for an exception that the model raised."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, tf.errors.OpError):
        status = _OF_TENSORFLOW.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
        return RequestError(status, _without_nodes(error.message))
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow raises this for an error whose message repeats input that is not text. The
        # error's type is lost, but only the input can have caused it.
        return invalid(_without_nodes(error.object.decode("utf-8", "replace")))
    if isinstance(error, MemoryError):
        message = "The request needs more memory than is available."
        return RequestError(HTTPStatus.TOO_MANY_REQUESTS, message)
    if is_of_the_system(error):
        message = f"{error.strerror}. Try again later."
        return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, message)
    return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")


def is_of_the_system(error: BaseException | None) -> bool:
    """Returns whether an error is a limit of the system that may not last."""
    return isinstance(error, OSError) and error.errno in _OF_THE_SYSTEM


def _without_nodes(message):
    return _NODES.sub("", message)[:_MAX_MESSAGE_LENGTH]
