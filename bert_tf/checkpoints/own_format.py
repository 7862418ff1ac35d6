"""This package's own format: `bert_tf.json`, `bert_tf.safetensors` and the tokenizer's files.

The tensors are the model's variables under this package's names, with their dtypes and layouts, so
that a mapped file is assigned without conversion. The JSON file holds the class, its arguments and
the configuration. What the other formats cannot express (pooling, objectives) is stored here too.
"""

import os

import keras

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import OBJECT, check, integer, may_lack, object_of, optional, text
from bert_tf.checkpoints.model_weights import BACKBONE_OPTIONS
from bert_tf.config import BertConfig, arguments_of
from bert_tf.errors import CheckpointError, ConfigError
from bert_tf.layers.quantization import QUANTIZATION
from bert_tf.models.backbone import BertBackbone

CONFIG_FILE = "bert_tf.json"
WEIGHTS_FILE = "bert_tf.safetensors"
VERSION = 1

_ANY_VERSION = object_of({"format_version": integer(least=1)})
_FILE = object_of(
    {
        "class": text(),
        "backbone": optional(text()),
        "config": OBJECT,
        "options": BACKBONE_OPTIONS,
        "quantization": may_lack(QUANTIZATION),
    }
)


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
    if values["format_version"] != VERSION:
        raise CheckpointError(
            f"`format_version` in {path} must be {VERSION}. Received: "
            f"format_version={values['format_version']}. A newer bert_tf may have written the "
            "file: pip install --upgrade bert-tf"
        )
    check(values, _FILE, path, CheckpointError)
    backbone_class = _backbone_class(values.get("backbone"), path)
    config_class = backbone_class.config_class
    check(values["config"], arguments_of(config_class), path, CheckpointError, "config")
    try:
        config = config_class(**values["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    options, quantization = dict(values["options"]), values.get("quantization")
    return values["class"], backbone_class, config, options, quantization


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
