"""Errors that a user can cause, told so that the user can mend them."""

# Nobody reads a longer message, and a hostile file would fill the log with one.
_LONGEST_MESSAGE = 8000  # characters
_KEPT = 2000  # at each end of one that is longer: where it begins with a path, it stays below that


class UserError(ValueError):
    """A mistake in the input: the message says what was expected, what came, and what to do.

    The tools print the message of this error without a stack trace. Of one that repeats a very long
    value the middle is left out.

    Args:
        message: What was expected, what came, and what to do.
    """

    def __init__(self, message: object = ""):
        text = str(message)
        if len(text) > _LONGEST_MESSAGE:
            left_out = len(text) - 2 * _KEPT
            text = f"{text[:_KEPT]} [{left_out} characters left out] {text[-_KEPT:]}"
        super().__init__(text)


class ConfigError(UserError):
    """A configuration that cannot be honoured."""


class CheckpointError(UserError):
    """A checkpoint that cannot be read or does not fit the model."""


class DataError(UserError):
    """A data file that cannot be read; the message names file and line."""
