"""This package's own format: `bert_tf.json`, `bert_tf.safetensors` and the tokenizer's files.

The tensors are the model's variables under this package's names, with their dtypes and layouts, so
that a mapped file is assigned without conversion. The JSON file holds the class, its arguments and
the configuration. What the other formats cannot express (pooling, objectives) is stored here too.
"""

import os

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import check, integer, object_of, text
from bert_tf.checkpoints.model_weights import OPTIONS
from bert_tf.config import ARGUMENTS, BertConfig
from bert_tf.errors import CheckpointError, ConfigError
from bert_tf.layers.quantization import QUANTIZATION

CONFIG_FILE = "bert_tf.json"
WEIGHTS_FILE = "bert_tf.safetensors"
VERSION = 1
QUANTIZED_VERSION = 2  # the file has the key "quantization", which version 1 does not have
CALIBRATED_VERSION = 3  # the file has smoothed kernels
PARTLY_QUANTIZED_VERSION = 4  # "quantization" is an object: attention too, or not all layers

_ANY_VERSION = object_of({"format_version": integer(least=1)})
_KEYS = {"class": text(), "config": ARGUMENTS, "options": OPTIONS}
_PLAIN = object_of(_KEYS)
_QUANTIZED = object_of({**_KEYS, "quantization": QUANTIZATION})


def read_own(directory: str) -> tuple[str, BertConfig, dict, str | dict | None]:
    """Reads the `bert_tf.json` of a directory.

    Returns:
        The class's name, the configuration, the class's other arguments, and what is quantized
        (`Quantization.to_json`) or None.

    Raises:
        CheckpointError: If the file is damaged or of a newer version.
        ConfigError: If a value is out of range.
    """
    path = os.path.join(directory, CONFIG_FILE)
    values = read_json(path, _ANY_VERSION)
    if not VERSION <= values["format_version"] <= PARTLY_QUANTIZED_VERSION:
        raise CheckpointError(
            f"`format_version` in {path} must be from {VERSION} to {PARTLY_QUANTIZED_VERSION}. "
            f"Received: format_version={values['format_version']}. A newer bert_tf may have "
            "written the file: pip install --upgrade bert-tf"
        )
    is_quantized = values["format_version"] != VERSION
    check(values, _QUANTIZED if is_quantized else _PLAIN, path, CheckpointError)
    try:
        config = BertConfig(**values["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    quantization = values["quantization"] if is_quantized else None
    return values["class"], config, dict(values["options"]), quantization
