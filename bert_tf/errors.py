"""Errors that a user can cause, told so that the user can mend them."""


class UserError(ValueError):
    """A mistake in the input: the message says what was expected, what came, and what to do.

    The tools print the message of this error without a stack trace.
    """


class ConfigError(UserError):
    """A configuration that cannot be honoured."""


class CheckpointError(UserError):
    """A checkpoint that cannot be read or does not fit the model."""


class DataError(UserError):
    """A data file that cannot be read; the message names file and line."""
