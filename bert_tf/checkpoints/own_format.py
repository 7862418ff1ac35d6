"""This package's own format: `bert_tf.json`, `bert_tf.safetensors` and the tokenizer's files.

The tensors are the model's variables under this package's names, with their dtypes and layouts, so
that a mapped file is assigned without conversion. The JSON file holds the class, its arguments and
the configuration. What the other formats cannot express (pooling, objectives) is stored here too.
"""

import os

import keras

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import OBJECT, check, integer, object_of, optional, text
from bert_tf.checkpoints.model_weights import OPTIONS
from bert_tf.config import BertConfig, arguments_of
from bert_tf.errors import CheckpointError, ConfigError
from bert_tf.layers.quantization import QUANTIZATION
from bert_tf.models.backbone import BertBackbone

CONFIG_FILE = "bert_tf.json"
WEIGHTS_FILE = "bert_tf.safetensors"
VERSION = 1
QUANTIZED_VERSION = 2  # the file has the key "quantization", which version 1 does not have
CALIBRATED_VERSION = 3  # the file has smoothed kernels
PARTLY_QUANTIZED_VERSION = 4  # "quantization" is an object: attention too, or not all layers

_ANY_VERSION = object_of({"format_version": integer(least=1)})
_KEYS = {"class": text(), "backbone": optional(text()), "config": OBJECT, "options": OPTIONS}
_PLAIN = object_of(_KEYS)
_QUANTIZED = object_of({**_KEYS, "quantization": QUANTIZATION})


def read_own(directory: str) -> tuple[str, type[BertBackbone], BertConfig, dict, str | dict | None]:
    """Reads the `bert_tf.json` of a directory.

    Returns:
        The class's name, the class of its backbone, the configuration, the class's other arguments,
        and what is quantized (`Quantization.to_json`) or None.

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
    backbone_class = _backbone_class(values.get("backbone"), path)
    config_class = backbone_class.config_class
    check(values["config"], arguments_of(config_class), path, CheckpointError, "config")
    try:
        config = config_class(**values["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    quantization = values["quantization"] if is_quantized else None
    return values["class"], backbone_class, config, dict(values["options"]), quantization


def registered_backbone(backbone: BertBackbone) -> str | None:
    """Returns what names the class of a backbone in a file; None if `BertConfig` describes it."""
    if backbone.config_class is BertConfig:
        return None
    return keras.saving.get_registered_name(type(backbone))


def _backbone_class(name, path) -> type[BertBackbone]:
    found = BertBackbone if name is None else keras.saving.get_registered_object(name)
    if not isinstance(found, type) or not issubclass(found, BertBackbone):
        raise CheckpointError(
            f"`backbone` in {path} must be the name under which a subclass of BertBackbone is "
            f"registered with Keras. Received: backbone={name!r:.200}. Import the module with the "
            "class first."
        )
    return found
