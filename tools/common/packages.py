"""Imports optional packages."""

import importlib

from bert_tf.errors import UserError


def require(name: str, install: str):
    """Returns a module; without its package, the error ends with the command `install`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} must be installed. Received: {error}. {install}") from None
