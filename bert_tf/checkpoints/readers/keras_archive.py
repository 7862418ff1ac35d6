"""Reads `.keras` archives and `.weights.h5` files that Keras wrote of this package's models.

Nothing that a file names is imported: its `config.json` may only name this package's models, and
their arguments are checked value by value.

Reference: Keras 3 `saving_lib` (a stored zip of `config.json` and `model.weights.h5`).
"""

import keras
import numpy as np

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.json_schema import OBJECT, check, may_lack, object_of, one_of, optional
from bert_tf.checkpoints.own_format import quantized_tensors
from bert_tf.checkpoints.weight_names import (
    ABSENT,
    BACKBONE,
    KERAS_ARGUMENTS,
    OWN,
    ModelDescription,
    all_weights,
    backbone_of,
    build_saved,
    model_class,
)
from bert_tf.config import ARGUMENTS, BertConfig
from bert_tf.errors import ConfigError, UserError, user_error
from bert_tf.layers.quantization import QUANTIZATION
from bert_tf.models.backbone import BertBackbone
from bert_tf.text.subword_tokenizer import SubwordTokenizer
from bert_tf.text.tokenizer import BertTokenizer

WEIGHTS = "model.weights.h5"
_PACKAGE = "bert_tf>"  # of our classes' names in Keras; tasks of other packages have their own
_BACKBONE = object_of(
    {
        "registered_name": one_of(f"{_PACKAGE}BertBackbone"),
        "config": object_of({"config": ARGUMENTS, "quantization": may_lack(QUANTIZATION)}),
    }
)
_TOKENIZERS = {f"{_PACKAGE}{c.__name__}": c for c in (BertTokenizer, SubwordTokenizer)}
_TOKENIZER = object_of({"registered_name": one_of(*_TOKENIZERS), "config": OBJECT})
_WRITTEN_BY_KERAS = ("name", "dtype")  # they are not used


@tasks.kept_until_registration
def _task_model():
    values = {
        **tasks.options(),
        **dict.fromkeys({*KERAS_ARGUMENTS} - {*_WRITTEN_BY_KERAS}, ABSENT),
        "backbone": _BACKBONE,
        "tokenizer": optional(_TOKENIZER),
    }
    return object_of({"config": object_of(values)})


class ModelSource:
    """The variables of a model whose weights are loaded. A `TensorSource`."""

    format = OWN

    def __init__(self, path: str, model):
        self.path = path
        self.model = model
        variables = {weight.name: weight.variable for weight in all_weights(model)}
        self._values = {**variables, **quantized_tensors(backbone_of(model))}
        self.shapes = {name: tuple(values.shape) for name, values in self._values.items()}

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._values[name])


def read_object(values: dict, path: str) -> ModelDescription:
    """Reads a serialized object of this package, the content of a JSON file.

    Raises `ConfigError` if it is not a model of this package, has LoRA weights, or a value is out
    of range.
    """
    registered = values.get("registered_name")
    name = str(registered).rpartition(">")[2]
    kind = model_class(name)
    if kind is None or keras.saving.get_registered_name(kind) != registered:
        expected = "be that of a model of bert_tf or of keras-hub"
        received = f"registered_name={registered!r:.200}"
        raise user_error(f"`registered_name` in {path}", expected, received, ConfigError)
    is_backbone = name == BACKBONE
    check(values, _BACKBONE if is_backbone else _task_model(), path, ConfigError)
    options = {} if is_backbone else dict(values["config"])
    backbone = values if is_backbone else options.pop("backbone")
    arguments = backbone["config"]
    if options.get("lora") is not None:
        raise ConfigError(
            f"{path} must hold a model without LoRA weights. Received: a model with LoRA weights. "
            "Open it with `keras.saving.load_model`, or call `merge_lora()` before saving."
        )
    tokenizer = options.pop("tokenizer", None)
    try:
        tokenizer = None if tokenizer is None else _tokenizer(tokenizer, path)
        config = BertConfig(**arguments["config"])
    except (TypeError, UserError) as error:
        raise ConfigError(f"{path}: {error}") from None
    unused = (*_WRITTEN_BY_KERAS, "lora")
    options = {key: value for key, value in options.items() if key not in unused}
    return ModelDescription(config, name, options, arguments.get("quantization"), tokenizer)


def _tokenizer(values, path):
    tokenizer_class = _TOKENIZERS[values["registered_name"]]
    check(values["config"], tokenizer_class.arguments, path, ConfigError, "config.tokenizer.config")
    return tokenizer_class(**values["config"])


def load_archive(path: str, model: ModelDescription) -> ModelSource:
    """Builds the model of a `.keras` or `.weights.h5` file and loads its weights with Keras.

    Raises `CheckpointError` if the class is unknown, or the weights are damaged or do not fit it.
    """
    name, options = model.class_name, model.options
    if model_class(name) is None:
        raise file_error(path, "hold a model of one of bert_tf's classes", f"class={name!r}")
    if model.tokenizer is not None:
        options = {**options, "tokenizer": model.tokenizer}
    backbone = BertBackbone(model.config, quantization=model.quantization)
    model = build_saved(path, name, backbone, options)
    try:
        model.load_weights(path)
    except (ValueError, OSError, KeyError, RuntimeError, TypeError, AttributeError) as error:
        raise file_error(path, f"hold the weights of the {name} that it names", error) from None
    return ModelSource(path, model)
