"""The import of tensorflow-text, which is slow and fails if another version is installed."""

import tensorflow as tf


def import_tensorflow_text():
    """Imports tensorflow-text and returns it.

    Raises:
        ImportError: If it is not installed for this TensorFlow. The message says what to install.
    """
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError) as error:
        minor = ".".join(tf.__version__.split(".")[:2])
        raise ImportError(
            "Tokenization needs the tensorflow-text of TensorFlow's minor version. "
            f"Received: {error}. Install it with: pip install 'tensorflow-text=={minor}.*'"
        ) from error
    return tensorflow_text
