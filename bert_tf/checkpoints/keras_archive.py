"""Keras's own files: `.keras` archives and `.weights.h5` of this package's models.

Nothing that the file names is imported: its `config.json` may only name this package's models, and
their arguments are read here, value by value.

Reference: Keras 3 `saving_lib` (a stored zip of `config.json` and `model.weights.h5`).
"""

import json

from bert_tf.checkpoints.quantized import quantized_tensors
from bert_tf.checkpoints.stored_zip import StoredZip
from bert_tf.checkpoints.tasks import all_weights, backbone_of, model_class
from bert_tf.checkpoints.weight_names import OWN
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError, ConfigError
from bert_tf.layers.quantization import INT8

WEIGHTS = "model.weights.h5"
_PACKAGE = "bert_tf>"


class ModelSource:
    """The variables of a model that Keras has loaded. A `TensorSource`."""

    format = OWN

    def __init__(self, path: str, model):
        self.path = path
        self._variables = {weight.name: weight.variable for weight in all_weights(model)}
        self._integers = quantized_tensors(backbone_of(model))
        self.shapes = {
            name: tuple(values.shape)
            for name, values in (*self._variables.items(), *self._integers.items())
        }

    def read(self, name: str):
        if name in self._integers:
            return self._integers[name]
        return self._variables[name].numpy()


def read_archive_config(archive: StoredZip) -> dict:
    """The `config.json` of a `.keras` archive: a serialized Keras object.

    Raises:
        CheckpointError: If it is missing, damaged or no JSON object.
    """
    try:
        values = json.loads(bytes(archive.view("config.json")))
    except (ValueError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{archive.path}: config.json is damaged ({error})") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{archive.path}: expected a Keras model in config.json")
    return values


def read_object(values: dict, path: str) -> tuple[str, BertConfig, dict, str | None]:
    """What a serialized object of this package says.

    Args:
        values: The JSON object.
        path: The file, for messages.

    Returns:
        The class's name, the configuration, the other arguments of a task model, `tokenizer` among
        them as a `BertTokenizer` or None, and None or "int8" if the weights are quantized.

    Raises:
        ConfigError: If it is no model of this package.
    """
    from bert_tf.text.tokenizer import BertTokenizer

    name = _own_name(values, path)
    options = dict(_mapping(values.get("config"), path))
    backbone = values
    if name != "BertBackbone":
        backbone = _mapping(options.pop("backbone", None), path)
        if _own_name(backbone, path) != "BertBackbone":
            raise ConfigError(f"{path}: expected a BertBackbone inside the {name}")
        tokenizer = options.pop("tokenizer", None)
        if tokenizer is not None:
            if _mapping(tokenizer, path).get("registered_name") != f"{_PACKAGE}BertTokenizer":
                raise ConfigError(f"{path}: expected a BertTokenizer inside the {name}")
            options["tokenizer"] = _built(BertTokenizer, tokenizer.get("config"), path)
    arguments = _mapping(backbone.get("config"), path)
    config, quantization = arguments.get("config"), arguments.get("quantization")
    if quantization not in (None, INT8):
        raise ConfigError(f"{path}: expected quantization {INT8!r}. Received: {quantization!r}")
    options = {} if name == "BertBackbone" else options
    options = {key: value for key, value in options.items() if key not in ("name", "dtype")}
    return name, _built(BertConfig, config, path), options, quantization


def load_archive(
    path: str, name: str, config: BertConfig, options: dict, quantization: str | None = None
) -> ModelSource:
    """Builds the model that the file was saved from and lets Keras load it.

    Args:
        path: The `.keras` or `.weights.h5` file.
        name: The model's class.
        config: Its configuration.
        options: Its other arguments.
        quantization: "int8" if the weights are quantized.

    Raises:
        CheckpointError: If the weights are damaged or do not fit.
    """
    from bert_tf.models.backbone import BertBackbone

    backbone = BertBackbone(config, quantization=quantization)
    model = backbone if name == "BertBackbone" else model_class(name)(backbone, **options)
    try:
        model.load_weights(path)
    except (ValueError, OSError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} does not fit the {name} it names: {error}") from None
    return ModelSource(path, model)


def _own_name(values, path):
    registered = str(values.get("registered_name"))
    name = registered.removeprefix(_PACKAGE)
    if not registered.startswith(_PACKAGE) or model_class(name) is None:
        raise ConfigError(
            f"{path}: expected a model of bert_tf or of keras-hub. Received: {registered!r}"
        )
    return name


def _mapping(values, path):
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: config.json is damaged: a JSON object was expected")
    return values


def _built(kind, arguments, path):
    try:
        return kind(**_mapping(arguments, path))
    except TypeError as error:
        raise ConfigError(f"{path}: config.json does not fit {kind.__name__}: {error}") from None
