"""Checks that tools make before any work."""

import importlib
import os

from bert_tf.errors import UserError
from bert_tf.tools.common.flag_table import FLAGS


def flag_error(name: str, rule: str, *others: str) -> UserError:
    """Returns the error that a flag breaks a rule, with its value and those of other flags."""
    values = {flag: FLAGS[flag].value for flag in (name, *others)}
    shown = (
        f"--{flag}={','.join(value) if isinstance(value, list) else value}"
        for flag, value in values.items()
    )
    return UserError(f"--{name} {rule}. Received: {', '.join(shown)}")


def positive_integers(name: str) -> list[int]:
    values = FLAGS[name].value
    if not all(value.isdecimal() and int(value) for value in values):
        raise flag_error(name, "must be positive whole numbers")
    return [int(value) for value in values]


def options_of(*names: str, **renamed: str) -> dict:
    """Returns the values of flags by option, without those that are None or an empty string.

    `names` are options with the names of their flags; `renamed` maps other options to their flags.
    """
    flag_of = {name: name for name in names} | renamed
    values = {option: FLAGS[flag].value for option, flag in flag_of.items()}
    return {option: value for option, value in values.items() if value not in (None, "")}


def require_one(*names: str) -> None:
    given = {f"--{name}": FLAGS[name].value for name in names}
    if sum(map(bool, given.values())) != 1:
        *others, last = given
        raise UserError(
            f"Exactly one of {', '.join(others)} and {last} must be set. Received: "
            + ", ".join(f"{name}={value}" for name, value in given.items())
        )


def require_other_directory(path: str, name: str, reason: str) -> None:
    """Requires that `path`, in or at --output_dir, is not the directory of the flag `name`."""
    if os.path.realpath(path) == os.path.realpath(FLAGS[name].value):
        rule = f"must be another directory than that of --{name}, {reason}"
        raise flag_error("output_dir", rule)


def require(name: str, install: str):
    """Returns a module; without its package, the error ends with the command `install`."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} must be installed. Received: {error}. {install}") from None
