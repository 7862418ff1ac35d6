"""The versions of a model: numbered folders, as TF Serving reads them."""

import contextlib
import os

from bert_tf.base.files import recover
from bert_tf.errors import CheckpointError

SAVED_MODEL_FILE = "saved_model.pb"
_MODEL_FILES = (SAVED_MODEL_FILE, "config.json", "bert_config.json", "bert_tf.json")


def is_model(directory: str | os.PathLike) -> bool:
    """Returns whether a directory holds a SavedModel or a model that `save_pretrained` wrote.

    Example:
        >>> is_model("reviews/"), is_model("corpus/")
        (True, False)
    """
    return any(os.path.isfile(os.path.join(directory, name)) for name in _MODEL_FILES)


def find_versions(directory: str | os.PathLike) -> dict[int, str]:
    """Returns the path of each version in a directory: folders with numbers as names.

    A directory that holds a model itself is version 1.

    Example:
        >>> find_versions("reviews/")
        {1: 'reviews/'}
    """
    with contextlib.suppress(CheckpointError):  # the existing versions are complete
        recover(directory)
    if is_model(directory):
        return {1: os.fspath(directory)}
    paths = {}
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(directory)):  # 1 wins over 01
            path = os.path.join(directory, name)
            if name.isascii() and name.isdigit() and os.path.isdir(path):
                paths[int(name)] = path
    return dict(sorted(paths.items()))
