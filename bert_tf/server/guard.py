"""What both servers do around every request: `access`, errors as answers, headers for browsers."""

from collections.abc import Callable
from http import HTTPStatus

from bert_tf.errors import UserError
from bert_tf.server.access import Access, is_preflight
from bert_tf.server.errors import RequestError, invalid, of_computation
from bert_tf.server.logs import REQUEST_ID, begin_request, log

_FRAMES = "frame-ancestors 'none'"
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}


def guarded(web, access: Access, error_response: Callable):
    """Returns the function with which both servers answer a request.

    Args:
        web: The module `aiohttp.web`.
        access: Who may send requests.
        error_response: Makes the response of a request and its `RequestError`.

    Returns:
        A coroutine function of a request and its handler, which returns a response for every
        request; only a `ConnectionError` of a client that has left passes through.
    """

    async def answer(request, handler):
        identifier = begin_request(request)
        try:
            access.check(request)
            if access.allowed_origins and is_preflight(request):
                response = web.Response(status=HTTPStatus.NO_CONTENT)
            else:
                response = await handler(request)
        except ConnectionError:
            raise
        except Exception as error:
            response = error_response(request, _request_error(web, request, error))
        response.headers.update({**_HEADERS, **access.cors_headers(request)})
        response.headers[REQUEST_ID] = identifier
        # An answer that is no page may load and run nothing.
        policy = response.headers.get("Content-Security-Policy", "default-src 'none'")
        response.headers["Content-Security-Policy"] = f"{policy}; {_FRAMES}"
        return response

    return answer


def _request_error(web, request, error):
    if isinstance(error, web.HTTPException):  # no such path, or another method
        allowed = error.headers.get("Allow")
        message = f"{error.reason}: {request.method} {request.path}"
        headers = {} if allowed is None else {"Allow": allowed}
        return RequestError(HTTPStatus(error.status), message, headers=headers)
    if isinstance(error, UserError):
        return invalid(str(error))
    if isinstance(error, web.RequestPayloadError):
        return invalid(f"The body must be complete and decodable. Received: {error}")
    # Not decoded, so that a path cannot forge lines of the log.
    return unexpected_error(error, f"{request.method} {request.rel_url.raw_path}")


def unexpected_error(error: Exception, name: str) -> RequestError:
    """Returns the error of a request; one that is no `RequestError` is logged, with `name`."""
    if isinstance(error, RequestError):
        return error
    answer = of_computation(error)
    # There is no traceback if the client or a limit of the system is the cause.
    trace = error if answer.status == HTTPStatus.INTERNAL_SERVER_ERROR else None
    log.error("A request failed: %s", name, exc_info=trace)
    return answer
