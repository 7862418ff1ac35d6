"""The parts of a model in Keras's description of it: nothing but what this package expects."""

from typing import Any

import keras

from bert_tf.errors import ConfigError


def deserialized(config: Any, kind: type, name: str) -> Any:
    """The argument `name` of a model from what `keras.saving.serialize_keras_object` made of it.

    A file may name any class of Keras in its place, and some open files when they are built.

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
