"""The import of tensorflow-text, which is slow and fails if another version is installed."""

import functools
import platform

import tensorflow as tf

# What to do on a system for which no wheels are published.
_NO_WHEELS = {
    "Windows": "It has no wheels for Windows: run this under Linux, for example in WSL 2, "
    "or pass token ids, which every model takes."
}


@functools.cache
def import_tensorflow_text():
    """Imports tensorflow-text and returns it.

    Raises:
        ImportError: If it is not installed for this TensorFlow. The message says what to install.
    """
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError) as error:
        minor = ".".join(tf.__version__.split(".")[:2])
        pip = f"Install it with: pip install 'tensorflow-text=={minor}.*'"
        raise ImportError(
            "Tokenization needs the tensorflow-text of TensorFlow's minor version. "
            f"Received: {error}. {_NO_WHEELS.get(platform.system(), pip)}"
        ) from error
    return tensorflow_text
