"""The log of the server: every line has a time, a level and the id of its request."""

import contextvars
import datetime
import json
import logging
import re
import secrets

TEXT, JSON = "text", "json"
REQUEST_ID = "X-Request-ID"  # of requests, and of their answers
_LOGGER = "bert_tf"
log = logging.getLogger("bert_tf.serving")
_request_id = contextvars.ContextVar("request_id", default=None)


def configure(form: str) -> None:
    """Writes the log of this package to stderr: as `TEXT` or, one object per line, as `JSON`."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(form))
    logger = logging.getLogger(_LOGGER)
    logger.handlers[:] = [handler]
    logger.propagate = False


def begin_request(request) -> str:
    """Returns the id of an aiohttp request, its own or a new one; the log has it from now on."""
    sent = request.headers.get(REQUEST_ID)
    is_valid = sent is not None and re.fullmatch(r"[\w.:-]{1,128}", sent, re.ASCII)
    identifier = sent if is_valid else secrets.token_hex(8)
    _request_id.set(identifier)
    return identifier


class LogFormatter(logging.Formatter):
    """Formats the lines of the log.

    Args:
        form: `TEXT` or `JSON`.
    """

    def __init__(self, form: str):
        super().__init__()
        self.form = form

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.datetime.fromtimestamp(record.created, datetime.timezone.utc)
        time = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        identifier = _request_id.get()
        message = record.getMessage()
        trace = self.formatException(record.exc_info) if record.exc_info else None
        if self.form == JSON:
            values = {"time": time, "level": record.levelname, "message": message}
            optional = {"request_id": identifier, "exception": trace}
            return json.dumps(values | {k: v for k, v in optional.items() if v is not None})
        shown = f"{time} {record.levelname} [{identifier or '-'}] {message}"
        return shown if trace is None else f"{shown}\n{trace}"
