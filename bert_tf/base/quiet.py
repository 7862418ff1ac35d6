"""Keeps TensorFlow's start-up messages out of what the programs print.

TensorFlow writes them in C++ to file descriptor 2. TF_CPP_MIN_LOG_LEVEL silences most of them, but
not those of its static initializers. Therefore stderr is filtered while TensorFlow is imported.
"""

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
import warnings

from absl import logging as absl_logging

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Errors are dropped too: a machine without a GPU has some of them when TensorFlow starts. What
# fails raises an exception in Python.
_SILENT = "3"
# Messages below fatal ones, by their letter and time, and the line above the first of them.
_START_UP = (
    r"^[IWE][0-9]{4} [0-9:. ]+ [a-z_]+\.cc:[0-9]+\] |^WARNING: All log messages before absl::"
)


def silence() -> None:
    """Silences TensorFlow, unless TF_CPP_MIN_LOG_LEVEL asks for more; it is then imported later.

    Python's log and warnings keep their text and lose the place in the source.
    """
    # A program that a silenced one starts finds the variable set, and is silenced too.
    if os.environ.setdefault(LEVEL, _SILENT) == _SILENT and "tensorflow" not in sys.modules:
        sys.meta_path.insert(0, _FilteredImport())
    absl_logging.set_verbosity(absl_logging.WARNING)
    absl_logging.get_absl_handler().setFormatter(logging.Formatter("%(message)s"))
    warnings.formatwarning = lambda message, *_, **__: f"warning: {message}\n"


def show_all() -> None:
    """Shows all messages, also in a program that a silenced one has started."""
    if os.environ.get(LEVEL) == _SILENT:
        del os.environ[LEVEL]


class _FilteredImport:
    """An entry of `sys.meta_path`: the first import of TensorFlow runs in `filtered_stderr`."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_filtered(module):
                with filtered_stderr():
                    execute(module)

            spec.loader.exec_module = execute_filtered
        return spec


@contextlib.contextmanager
def filtered_stderr():
    """Sends stderr through a process that drops start-up messages, also if this one is aborted.

    The output of programs that are started meanwhile is filtered too.
    """
    command = ["grep", "--line-buffered", "--extended-regexp", "--invert-match", _START_UP]
    sys.stderr.flush()
    stderr = os.dup(2)
    try:  # Ctrl-C is for this process: the other one ends when stderr is closed
        grep = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=stderr, start_new_session=True
        )
    except OSError:  # no grep
        os.close(stderr)
        yield
        return
    os.dup2(grep.stdin.fileno(), 2)
    grep.stdin.close()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        grep.wait()
