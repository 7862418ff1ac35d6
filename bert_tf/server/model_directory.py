"""Finds the models in a directory and loads them as SavedModels."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile

from bert_tf import tasks
from bert_tf.errors import UserError
from bert_tf.server.served_model import ServedModel
from bert_tf.serving import SAVED_MODEL_FILE, is_model

# What `from_pretrained` reads in a directory that may also hold the logs of a training.
_MODEL_SUFFIXES = (".json", ".txt", ".model", ".safetensors", ".bin", ".h5", ".index")
_exports: set[subprocess.Popen] = set()  # the processes of `export_apart` that are running


def fingerprint(path: str | os.PathLike) -> tuple:
    """Returns a value that changes when the files of a model change; empty without files."""
    is_exported = os.path.isfile(os.path.join(path, SAVED_MODEL_FILE)) or not is_model(path)
    found = []
    for folder, _, names in os.walk(path):
        for name in names:
            if is_exported or name.endswith(_MODEL_SUFFIXES):
                with contextlib.suppress(OSError):
                    status = os.stat(os.path.join(folder, name))
                    found.append((folder, name, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))


def open_model(
    path: str | os.PathLike, pairs: bool = False, trusted: bool = False, precision: str = "float32"
) -> ServedModel:
    """Loads a model and calls it once; one that `save_pretrained` wrote is exported first.

    `pairs`, `trusted` and `precision` are as in `ModelVersions`.

    Raises:
        UserError: If it cannot be loaded.
    """
    if os.path.isfile(os.path.join(path, SAVED_MODEL_FILE)) or not is_model(path):
        model = ServedModel(path, trusted)
    else:
        with tempfile.TemporaryDirectory(prefix="bert_tf_serve_") as folder:
            model = ServedModel(export_apart(path, folder, pairs, precision))
    model.warm_up()
    # glibc keeps what reading the graph took, tens of MiB, until it is asked to return it.
    with contextlib.suppress(AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
    return model


def export_apart(
    path: str | os.PathLike,
    folder: str | os.PathLike,
    pairs: bool = False,
    precision: str = "float32",
) -> str:
    """Exports a model directory to `folder` and returns the path.

    A separate process writes it, so that the server's memory does not grow.

    Raises:
        UserError: If it cannot be exported.
    """
    program = [sys.executable, "-m", "bert_tf.server.export_for_server"]
    inputs = "pairs" if pairs else "single"
    arguments = [
        os.fspath(path),
        os.fspath(folder),
        precision,
        inputs,
        *tasks.registered_packages(),
    ]
    process = subprocess.Popen(
        [*program, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # so that Ctrl-C interrupts only the server
    )
    _exports.add(process)
    try:
        output, messages = process.communicate()
    finally:
        _exports.discard(process)
    try:
        answer = json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        raise UserError(
            f"{path} must be a model that can be exported. Received:\n{messages[-2000:]}"
        ) from None
    if "error" in answer:
        raise UserError(f"{path}: {answer['error']}")
    return answer["path"]


def kill_exports() -> None:
    """Ends the processes of `export_apart`, for a server that ends while it loads a model."""
    for process in list(_exports):
        process.kill()
