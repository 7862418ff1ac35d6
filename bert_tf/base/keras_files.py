"""Keras's own files: written atomically, and read without trust in the classes that they name."""

import os
from collections.abc import Callable
from typing import Any

import keras

from bert_tf.base.files import staged_files
from bert_tf.errors import ConfigError


def write_atomically(
    save: Callable, filepath: str | os.PathLike, overwrite: bool, **options: Any
) -> None:
    """Calls a function of Keras that saves a model, so that the file is written atomically.

    Args:
        save: `keras.Model.save` or `keras.Model.save_weights` of a model.
        filepath: The file. Keras itself writes to URLs and file objects.
        overwrite: False asks before a file is replaced.
        **options: Further arguments of `save`.
    """
    is_local = isinstance(filepath, (str, os.PathLike)) and "://" not in os.fspath(filepath)
    if not is_local or (not overwrite and os.path.exists(filepath)):
        save(filepath, overwrite=overwrite, **options)
        return
    directory, name = os.path.split(os.path.abspath(filepath))
    with staged_files(directory) as new:  # several files where the weights are sharded
        save(os.path.join(new, name), overwrite=overwrite, **options)


def deserialized(config: Any, kind: type, name: str) -> Any:
    """Returns the argument `name` of a model, which `serialize_keras_object` serialized.

    A file may name another class of Keras, and some open files when they are built: it is refused.

    Raises:
        ConfigError: If it is not a description of a `kind` or of a registered subclass.
    """
    registered = config.get("registered_name") if isinstance(config, dict) else None
    found = keras.saving.get_registered_object(registered) if isinstance(registered, str) else None
    if not isinstance(found, type) or not issubclass(found, kind):
        raise ConfigError(
            f"`{name}` must be a serialized {kind.__name__}, or a subclass of it that is "
            f"registered with Keras. Received: registered_name={registered!r:.200}"
        )
    return keras.saving.deserialize_keras_object(config)
