"""Checks that tools make before any work."""

import importlib

from absl import flags

from bert_tf.errors import UserError

FLAGS = flags.FLAGS


def positive_integers(name: str) -> list[int]:
    """Returns the values of a list flag as positive integers."""
    values = FLAGS[name].value
    if not all(value.isdecimal() and int(value) for value in values):
        raise UserError(
            f"--{name} must be positive whole numbers. Received: --{name}={','.join(values)}"
        )
    return [int(value) for value in values]


def require(name: str, install: str):
    """Returns a module; without its package, the error ends with the command `install`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} must be installed. Received: {error}. {install}") from None
