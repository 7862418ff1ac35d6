"""Errors that users can cause, with messages that say how to correct them."""

import contextlib
import os
from collections.abc import Collection, Iterator

# Longer messages are not useful, and a malicious file could fill the log with them.
_LONGEST_MESSAGE = 8000  # characters
_KEPT = 2000  # characters at each end of a longer message; below the limit even with a path added


class UserError(ValueError):
    """A mistake in the input. Tools print it without a stack trace; a long message is shortened.

    Args:
        message: What was expected, what was received, and what to do.

    Example:
        >>> try:
        ...     bert_tf.BertConfig(hidden_size=100)
        ... except UserError as error:
        ...     print(error)
        `hidden_size` must be a multiple of `num_attention_heads`. Received: hidden_size=100, ...
    """

    def __init__(self, message: object = ""):
        text = str(message)
        if len(text) > _LONGEST_MESSAGE:
            left_out = len(text) - 2 * _KEPT
            text = f"{text[:_KEPT]} [{left_out} characters left out] {text[-_KEPT:]}"
        super().__init__(text)


class ConfigError(UserError):
    """A configuration that is invalid or not supported."""


class CheckpointError(UserError):
    """A checkpoint that cannot be read or does not fit the model."""


class DataError(UserError):
    """A data file that cannot be read. The message names the file and the line."""


def require(
    holds: object, rule: str, error: type[Exception] = ConfigError, fix: str = "", /, **received
) -> None:
    """Raises an error with the received arguments, of which the first is named in the rule.

    `fix` says what to do.
    """
    if not holds:
        values = ", ".join(f"{name}={value!r}" for name, value in received.items())
        raise error(f"`{next(iter(received))}` {rule}. Received: {values}. {fix}".rstrip())


def user_error(
    subject: str, expected: str, received: object, error: type[UserError] = UserError
) -> UserError:
    """Returns the error for input that is not as expected."""
    return error(f"{subject} must {expected}. Received: {received}")


@contextlib.contextmanager
def naming(path: str | os.PathLike | None) -> Iterator[None]:
    """Adds a file, if there is one, to the errors of its content that do not name it."""
    try:
        yield
    except UserError as error:
        if path is None or os.fspath(path) in str(error):
            raise
        raise type(error)(f"{os.fspath(path)}: {error}") from error


def check_limits(**limits: int | None) -> None:
    """Raises `ConfigError` if a limit is below 1."""
    for name, limit in limits.items():
        require(limit is None or limit >= 1, "must be at least 1", **{name: limit})


def require_one_of(name: str, value: object, allowed: Collection) -> None:
    """Raises `UserError` if the argument `name` has a value that is not allowed."""
    if value not in allowed:
        raise UserError(f"`{name}` must be one of {allowed}. Received: {name}={value!r}")
