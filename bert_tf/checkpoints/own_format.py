"""This package's own format: `bert_tf.json`, `bert_tf.safetensors` and the tokenizer's files.

The tensors are our variables under our names, in their own types and layouts, so that a file is
mapped and assigned as it is; the JSON file holds the class, its arguments and the configuration.
Everything that has no place in the other formats (pooling, objectives) has one here.
"""

import json
import os

from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError, ConfigError
from bert_tf.layers.quantization import INT8

CONFIG_FILE = "bert_tf.json"
WEIGHTS_FILE = "bert_tf.safetensors"
VERSION = 1
QUANTIZED_VERSION = 2  # of a file with "quantization", which version 1 does not know
CALIBRATED_VERSION = 3  # of one whose kernels are smoothed


def read_own(directory: str) -> tuple[str, BertConfig, dict, str | None]:
    """What `bert_tf.json` says.

    Returns:
        The class's name, the configuration, the class's other arguments, and None or "int8" if the
        weights are quantized.

    Raises:
        CheckpointError: If the file is damaged or of a newer version.
        ConfigError: If a value is out of range.
    """
    path = os.path.join(directory, CONFIG_FILE)
    try:
        with open(path, encoding="utf-8") as file:
            values = json.load(file)
        version, name = values["format_version"], values["class"]
        config, options = dict(values["config"]), dict(values["options"])
        is_quantized = version in (QUANTIZED_VERSION, CALIBRATED_VERSION)
        quantization = values["quantization"] if is_quantized else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error})") from None
    if version not in (VERSION, QUANTIZED_VERSION, CALIBRATED_VERSION):
        raise CheckpointError(
            f"{path}: expected format_version {VERSION} to {CALIBRATED_VERSION}. Received: "
            f"{version!r}. A newer bert_tf may have written it: pip install --upgrade bert-tf"
        )
    if quantization not in (None, INT8):
        raise CheckpointError(
            f"{path}: expected quantization {INT8!r}. Received: {quantization!r}"
        )
    try:
        return str(name), BertConfig(**config), options, quantization
    except (ConfigError, TypeError) as error:
        raise ConfigError(f"{path}: {error}") from None
