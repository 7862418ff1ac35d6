"""This package's own format: `bert_tf.json`, `bert_tf.safetensors` and the tokenizer's files.

The tensors are the model's variables under this package's names, with their dtypes and layouts, so
that a mapped file is assigned without conversion. The JSON file holds the class, its arguments and
the configuration. What the other formats cannot express (pooling, objectives) is stored here too.

For a quantized weight, the file holds an int8 tensor with the same shape and name, and its float32
scales with the suffix `_scale`: one per column of a kernel `[in, out]`, one per row of the word
embeddings `[V, E]`. A calibrated kernel also has a float32 tensor `[in]` with the suffix
`_smoothing`; without it, the smoothing is 1. A static scale and its zero point are a float32 tensor
`[2]` with the suffix `_input_scale`.
"""

import os
from collections.abc import Callable, Iterator

import keras
import numpy as np

from bert_tf.base.file_errors import tensor_error
from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import OBJECT, check, integer, may_lack, object_of, optional, text
from bert_tf.base.tensor_source import TensorSource
from bert_tf.checkpoints.weight_names import BACKBONE_OPTIONS, ModelDescription
from bert_tf.config import BertConfig, arguments_of
from bert_tf.errors import CheckpointError, ConfigError, require, user_error
from bert_tf.layers.kernels import Int8Kernel
from bert_tf.layers.quantization import QUANTIZATION
from bert_tf.models.backbone import BertBackbone
from bert_tf.ops.quantized_dense import SMALLEST_SPAN

# The suffixes of the parts of a weight.
_SUFFIXES = {
    "values": "",
    "scale": "_scale",
    "smoothing": "_smoothing",
    "static_scale": "_input_scale",
}


def quantized_tensors(backbone) -> dict[str, np.ndarray]:
    """Returns the tensors of a backbone's integers; empty if it is not quantized."""
    tensors = {}
    for name, read, _ in _places(backbone):
        for part, value in read().items():
            if part != "smoothing" or np.any(value != 1.0):
                tensors[name + _SUFFIXES[part]] = value.numpy()
    return tensors


def quantized_variables(backbone) -> list[keras.Variable]:
    """Returns the variables from which `quantized_tensors` is computed."""
    if backbone.quantization is None:
        return []
    embeddings = backbone.embeddings
    variables = [embeddings.word_embeddings, embeddings.word_embeddings_scale]
    for dense in backbone.encoder.dense_layers().values():
        if isinstance(dense.kernel_impl, Int8Kernel):
            variables += dense.kernel_impl.variables
    return variables


def restore_quantized(backbone, source: TensorSource) -> list[str]:
    """Reads the integers and scales of a quantized backbone.

    Returns:
        The names of the tensors that were read.

    Raises:
        CheckpointError: If a tensor is missing, damaged or of another shape or dtype.
    """
    names = []
    for name, read, write in _places(backbone):
        parts = {}
        for part, like in read().items():
            part_name = name + _SUFFIXES[part]
            if part == "smoothing" and part_name not in source.shapes:
                continue
            like = np.asarray(like)
            shape = source.shapes.get(part_name, "no such tensor")
            if shape != like.shape:
                raise tensor_error(source, part_name, f"have shape {like.shape}", shape)
            value = source.read(part_name)
            is_finite = value.dtype.kind != "f" or np.isfinite(value).all()
            if value.dtype != like.dtype or not is_finite:
                received = f"{value.dtype}{'' if is_finite else ' with NaN or infinity'}"
                expected = f"hold finite {like.dtype} numbers"
                raise tensor_error(source, part_name, expected, received)
            if part == "static_scale" and not _is_static_scale(*value.tolist()):
                expected = "hold a scale of at least 2^-100 and an integral zero point in [0, 255]"
                raise tensor_error(source, part_name, expected, value.tolist())
            parts[part] = np.array(value)  # not a view of the file
            names.append(part_name)
        write(**parts)
    return names


def _is_static_scale(scale, zero):
    return scale >= SMALLEST_SPAN and 0 <= zero <= 255 and zero == int(zero)


def _places(backbone) -> Iterator[tuple[str, Callable, Callable]]:
    """Yields the name of each quantized weight, and functions that read and replace its parts."""
    if backbone.quantization is None:
        return
    embeddings = backbone.embeddings
    yield (
        "embeddings.word_embeddings",
        lambda: {
            "values": embeddings.word_embeddings.value,
            "scale": embeddings.word_embeddings_scale.value,
        },
        embeddings.set_quantized_words,
    )
    for path, dense in backbone.encoder.dense_layers().items():
        if isinstance(dense.kernel_impl, Int8Kernel):
            yield f"encoder.{path}.kernel", dense.kernel_impl.unpacked, dense.kernel_impl.assign


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


def read_own(directory: str) -> ModelDescription:
    """Reads the `bert_tf.json` of a directory.

    Raises `CheckpointError` if the file is damaged or of a newer version, and `ConfigError` if a
    value is out of range.
    """
    path = os.path.join(directory, CONFIG_FILE)
    values = read_json(path, _ANY_VERSION)
    rule = f"in {path} must be {VERSION}"
    fix = "A newer bert_tf may have written the file: pip install --upgrade bert-tf"
    is_valid = values["format_version"] == VERSION
    require(is_valid, rule, CheckpointError, fix, format_version=values["format_version"])
    check(values, _FILE, path, CheckpointError)
    backbone_class = _backbone_class(values.get("backbone"), path)
    config_class = backbone_class.config_class
    check(values["config"], arguments_of(config_class), path, CheckpointError, "config")
    try:
        config = config_class(**values["config"])
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    options, quantization = dict(values["options"]), values.get("quantization")
    backbone = {"quantization": quantization, "backbone_class": backbone_class}
    return ModelDescription(config, values["class"], options, **backbone)


def registered_backbone(backbone: BertBackbone) -> str | None:
    """Returns what names the class of a backbone in a file; None if `BertConfig` describes it."""
    if backbone.config_class is BertConfig:
        return None
    return keras.saving.get_registered_name(type(backbone))


def _backbone_class(name, path) -> type[BertBackbone]:
    found = BertBackbone if name is None else keras.saving.get_registered_object(name)
    if not isinstance(found, type) or not issubclass(found, BertBackbone):
        expected = "be the name under which a subclass of BertBackbone is registered with Keras"
        received = f"backbone={name!r:.200}. Import the module with the class first."
        raise user_error(f"`backbone` in {path}", expected, received, CheckpointError)
    return found
