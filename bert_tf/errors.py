"""Errors that a user can cause, told so that the user can mend them."""

MOST_CHARACTERS = 4000  # of a message: nobody reads more, and a hostile file would fill the log


class UserError(ValueError):
    """A mistake in the input: the message says what was expected, what came, and what to do.

    The tools print the message of this error without a stack trace. The middle of a message that
    repeats a long value is left out.
    """

    def __init__(self, message: object = ""):
        text = str(message)
        if len(text) > MOST_CHARACTERS:
            half = MOST_CHARACTERS // 2
            text = f"{text[:half]} … {len(text) - 2 * half} characters … {text[-half:]}"
        super().__init__(text)


class ConfigError(UserError):
    """A configuration that cannot be honoured."""


class CheckpointError(UserError):
    """A checkpoint that cannot be read or does not fit the model."""


class DataError(UserError):
    """A data file that cannot be read; the message names file and line."""
