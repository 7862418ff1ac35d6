"""The weights of a model as checkpoints store them, and the table of their names in every format.

The rows of the heads are in the specs of the tasks (`bert_tf.tasks`).

Sources: google-research/bert modeling.py and run_*.py (scopes); `transformers` modeling_bert.py;
keras-hub's BertBackbone, saved by Keras 3; tensorflow/models official/nlp/modeling.

Glossary: `H` hidden size, `N` heads, `D` head size.
"""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable
from typing import Any

import keras

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.json_schema import OBJECT, Kind, may_lack, object_of
from bert_tf.config import BertConfig
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.weight_rows import (
    ATTENTION_OUTPUT,
    CONVOLUTION,
    DENSE,
    ENCODER_BLOCK,
    INTERMEDIATE,
    KEY_VALUE,
    LAYER_NORM,
    OUTPUT,
    PROJECTION,
    QUERY_KEY_VALUE,
    QUERY_VALUE,
    TABLE,
    VECTOR,
    Row,
    layer_row,
)

OWN = "bert_tf"
FORMATS = ("huggingface", "tf1", "keras_hub", "tf_models", OWN)
# The layers of other formats that are one layer here.
_ROLES = {
    QUERY_KEY_VALUE: ("query", "key", "value"),
    KEY_VALUE: ("key", "value"),
    QUERY_VALUE: ("q", "v"),
}
_FIRST_BLOCK = 4  # tensorflow/models: layers 0 to 3 are the embeddings and their LayerNorm


def _embedding_row(place, kind, ours, keras_hub, tf_models, theirs=None):
    """Returns a layer of the embeddings, number `place` in tensorflow/models."""
    own, name, hub = f"embeddings.{ours}", f"embeddings.{theirs or ours}", f"backbone/{keras_hub}"
    official = f"encoder/layer_with_weights-{place}|encoder/{tf_models}"
    return layer_row(kind, own, name, hub, official, scope="bert/")


EMBEDDINGS = (
    _embedding_row(0, TABLE, "word_embeddings", "reversible_embedding", "_embedding_layer"),
    _embedding_row(
        1, TABLE, "position_embeddings", "position_embedding", "_position_embedding_layer"
    ),
    _embedding_row(
        2,
        TABLE,
        "segment_embeddings",
        "embedding",
        "_type_embedding_layer",
        "token_type_embeddings",
    ),
    _embedding_row(
        3, LAYER_NORM, "layer_norm", "layer_normalization", "_embedding_norm_layer", "LayerNorm"
    ),
    Row(TABLE, "embeddings.task_embeddings", "embeddings.task_type_embeddings", None),
    Row(DENSE, "embeddings.projection", "embeddings_project", None),
    Row(TABLE, "encoder.distance_bias", "encoder.relative_attention_bias", None),
    Row(TABLE, "encoder.distances", "encoder.rel_embeddings", None),
    Row(LAYER_NORM, "encoder.distance_norm", "encoder.LayerNorm", None),
    Row(LAYER_NORM, "encoder.final_norm", "encoder.final_norm", None),
)


def _block_row(kind, ours, theirs, keras_hub, *tf_models):
    """Returns a layer of an encoder block; Hugging Face and TF1 differ only in the separator."""
    return Row(
        kind,
        f"encoder.blocks.{{index}}.{ours}",
        f"encoder.layer.{{index}}.{theirs}",
        f"bert/encoder/layer_{{index}}/{theirs.replace('.', '/')}",
        f"backbone/transformer_encoder{{suffix}}/{keras_hub}",
        "|".join(
            f"encoder/{block}/{name}"
            for block in ("layer_with_weights-{place}", "_transformer_layers/{index}")
            for name in tf_models
        ),
    )


# The names in keras-hub's and tensorflow/models' blocks of the layers of `ENCODER_BLOCK`.
_OTHER_BLOCK_NAMES = (
    ("_self_attention_layer/{role}_dense", "_attention_layer/_{role}_dense"),
    (
        "_self_attention_layer/output_dense",
        "_attention_layer/_output_dense",
        "_attention_output_dense",  # before tensorflow/models 2.4
    ),
    ("_self_attention_layer_norm", "_attention_layer_norm"),
    ("_feedforward_intermediate_dense", "_intermediate_dense"),
    ("_feedforward_output_dense", "_output_dense"),
    ("_feedforward_layer_norm", "_output_layer_norm"),
)
_OURS, _THEIRS = "encoder.blocks.{index}", "encoder.layer.{index}.attention.self"
BLOCK = (
    *(
        _block_row(*layer, *names)
        for layer, names in zip(ENCODER_BLOCK, _OTHER_BLOCK_NAMES, strict=True)
    ),
    # What only blocks of DeBERTa have.
    Row(QUERY_VALUE, f"{_OURS}.attention.query_value_bias", f"{_THEIRS}.{{role}}_bias", None),
    Row(DENSE, f"{_OURS}.attention.distance_query", f"{_THEIRS}.pos_query_proj", None),
    Row(DENSE, f"{_OURS}.attention.distance_key", f"{_THEIRS}.pos_key_proj", None),
    Row(CONVOLUTION, f"{_OURS}.convolution.dense", "encoder.conv.conv", None),
    Row(LAYER_NORM, f"{_OURS}.convolution.layer_norm", "encoder.conv.LayerNorm", None),
)


POOLER = (
    Row(
        DENSE,
        "pooler.dense",
        "pooler.dense",
        "bert/pooler/dense",
        "backbone/dense",
        # Pre-training models of tensorflow/models train the head's pooler, not the encoder's.
        "next_sentence.pooler_dense|encoder/layer_with_weights-{pooler}|encoder/_pooler_layer",
    ),
    Row(LAYER_NORM, "pooler.layer_norm", "pooler.layer_norm", None),
)

# The variables of a layer by its kind; those of the other kinds are a kernel and a bias.
_VARIABLES = {
    TABLE: (None,),
    VECTOR: (None,),
    QUERY_VALUE: (None,),
    LAYER_NORM: ("gamma", "beta"),
    PROJECTION: ("kernel",),
}
# The last part of a variable's name, by format.
_HUGGINGFACE_LEAVES = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_KERAS_LEAVES = {"kernel": "vars/0", "bias": "vars/1", "gamma": "vars/0", "beta": "vars/1"}
_TF1_OUTPUT_LEAVES = {"kernel": "output_weights", "bias": "output_bias"}


@dataclasses.dataclass(frozen=True)
class Part:
    """A tensor of a file.

    Attributes:
        names: Its possible names; the first one is used for writing.
        shape: Its shape in the file.
        transposed: Whether the file stores `[out, in]` and the variable is `[in, out]`. Otherwise
            the values have the same order.
    """

    names: tuple[str, ...]
    shape: tuple[int, ...]
    transposed: bool = False


@dataclasses.dataclass(frozen=True)
class Weight:
    """A variable and the tensors that hold its values in each format.

    Attributes:
        name: This package's name for it, which its own format uses.
        variable: The Keras variable.
        parts: For each format, the tensors whose concatenation along the last axis is the
            variable. Empty if the format has no name for it.
    """

    name: str
    variable: keras.Variable
    parts: dict[str, tuple[Part, ...]]


@functools.singledispatch
def backbone_weights(backbone) -> list[Weight]:
    """Returns the weights except the pooler's; names lack Hugging Face's prefix `bert.`.

    A subclass of `BertBackbone` with other layers registers a function of its own.
    """
    weights = named_weights(EMBEDDINGS, backbone, backbone.config)
    for index in range(backbone.config.num_blocks):
        fields = {"index": index, "place": index + _FIRST_BLOCK}
        suffix = f"_{index}" if index else ""
        weights += named_weights(BLOCK, backbone, backbone.config, suffix=suffix, **fields)
    return weights


def pooler_weights(backbone) -> list[Weight]:
    """Returns the pooler's weights, which some checkpoints do not have."""
    place = backbone.config.num_hidden_layers + _FIRST_BLOCK
    return named_weights(POOLER, backbone, backbone.config, pooler=place)


def named_weights(rows: Iterable[Row], root, config, prefix="", **fields) -> list[Weight]:
    """Returns the weights of the layers `rows` of `root`, the model's attribute `prefix`."""
    weights = []
    for row in rows:
        path = row.ours.format(**fields)
        layer = _resolve(root, path) if path else root
        if layer is None:
            continue  # this configuration of the network has no such layer
        own = ".".join(part for part in (prefix, path) if part)
        for variable_name in _VARIABLES.get(row.kind, ("kernel", "bias")):
            variable = layer if variable_name is None else getattr(layer, variable_name)
            if variable is None or variable.dtype == "int8":
                continue  # handled in quantized.py
            name = own if variable_name is None else f"{own}.{variable_name}"
            shape = tuple(variable.shape)
            parts = {
                format: _parts(row, format, variable_name, shape, config, fields)
                for format in FORMATS[:-1]
            }
            parts[OWN] = (Part((name,), shape),)
            weights.append(Weight(name, variable, parts))
    return weights


def _resolve(root, path):
    """Returns the attribute at a path such as `encoder.blocks.0`; numbers are indices.

    None if a layer of the path is None.
    """
    for step in path.split("."):
        if root is None:
            break
        root = root[int(step)] if step.isdigit() else getattr(root, step)
    return root


def _parts(row, format, variable_name, shape, config, fields):
    if getattr(row, format) is None:
        return ()
    roles = _ROLES.get(row.kind, (None,))
    if row.kind == INTERMEDIATE:
        roles = ("gate", "up") if config.gated_mlp else ("dense",)
    widths = [shape[-1] // len(roles)] * len(roles)
    if row.kind == QUERY_KEY_VALUE and config.num_key_value_heads:
        groups = config.num_key_value_heads
        widths = [n * config.head_size for n in (config.num_attention_heads, groups, groups)]
    parts = []
    for role, width in zip(roles, widths, strict=True):
        layout = _file_shape(row.kind, format, variable_name, (*shape[:-1], width), config)
        parts.append(Part(part_names(row, format, variable_name, role=role, **fields), *layout))
    return tuple(parts)


def part_names(row: Row, format: str, variable_name: str | None, **fields) -> tuple[str, ...]:
    """Returns all names of one variable of a layer in a format."""
    return tuple(
        _leaf(row.kind, format, spelling.format(**fields), variable_name)
        for spelling in getattr(row, format).split("|")
    )


def _file_shape(kind, format, variable_name, shape, config):
    """Returns the shape of one part in the file, and whether it is transposed."""
    size = config.head_size
    if format in ("keras_hub", "tf_models"):
        if kind == QUERY_KEY_VALUE:  # [H, N * D] -> [H, N, D] and [N * D] -> [N, D]
            return (*shape[:-1], shape[-1] // size, size), False
        if kind == ATTENTION_OUTPUT and variable_name == "kernel":  # [N * D, H] -> [N, D, H]
            return (shape[0] // size, size, shape[1]), False
        return shape, False
    transposed = variable_name == "kernel" and (format == "huggingface" or kind == OUTPUT)
    if transposed and kind == CONVOLUTION:
        size = shape[0] // config.hidden_size
        shape = (size, config.hidden_size, shape[1])  # [k * in, out] -> [k, in, out]
    return (tuple(reversed(shape)) if transposed else shape), transposed


def _leaf(kind, format, layer, variable_name):
    if kind in (VECTOR, QUERY_VALUE) or (kind == TABLE and format == "tf1"):
        return layer
    if format == "huggingface":
        return f"{layer}.{_HUGGINGFACE_LEAVES.get(variable_name, 'weight')}"
    if format == "keras_hub":
        return f"{layer}/{_KERAS_LEAVES.get(variable_name, 'vars/0')}"
    if format == "tf_models":
        return f"{layer}/{variable_name or 'embeddings'}"
    leaf = _TF1_OUTPUT_LEAVES[variable_name] if kind == OUTPUT else variable_name
    return f"{layer}/{leaf}" if layer else leaf


BACKBONE = "BertBackbone"
# Arguments of every class, which are those of Keras's layers. A file must not set them.
KERAS_ARGUMENTS = ("activity_regularizer", "autocast", "dtype", "name", "trainable")
ABSENT = may_lack(Kind("absent, as it is an argument of Keras's layers", lambda value: False))


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """What files say about a model.

    Attributes:
        config: The configuration of its network.
        class_name: The model class of this package, or None.
        options: The other arguments of that class.
        quantization: What is quantized, as `Quantization.to_json` returns it, or None.
        tokenizer: The tokenizer in the file; None if the tokenizer has separate files.
        backbone_class: The class that takes the configuration.
    """

    config: BertConfig
    class_name: str | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    quantization: str | dict | None = None
    tokenizer: Any = None
    backbone_class: type[BertBackbone] = BertBackbone


@tasks.kept_until_registration
def _options():
    return object_of({**tasks.options(), **dict.fromkeys(KERAS_ARGUMENTS, ABSENT)})


# The arguments of a model's class in a file. The constructors refuse invalid combinations.
BACKBONE_OPTIONS = Kind(
    OBJECT.expected, lambda value: _options().fits(value), lambda value: _options().inside(value)
)


@tasks.kept_until_registration
def ambiguous_heads() -> frozenset[str]:
    """Returns the names of heads whose layers share Hugging Face names with other heads.

    A file that has such a head may have it for another task.
    """
    heads = [head for spec in tasks.specs() for head in spec.heads.values()]
    owners = collections.defaultdict(set)  # the heads with a layer of this name
    for name, row in ((head.name, row) for head in heads for row in head.rows):
        for layer in row.huggingface.split("|") if row.huggingface else ():
            owners[layer].add(name)
    return frozenset().union(*(names for names in owners.values() if len(names) > 1))


def class_name_of(model) -> str:
    """Returns the name of a model's public class, also for a user's subclass of it."""
    names = [base.__name__ for base in type(model).__mro__]
    return next((name for name in names if name == BACKBONE or tasks.spec_of(name)), names[0])


def task_heads(model) -> dict[str, list[Weight]]:
    """Returns the weights of each of a model's heads, by the head's name."""
    config = backbone_of(model).config
    spec = tasks.declared_spec(type(model))
    heads = {}
    for path, head in {**spec.heads, **spec.optional_heads}.items():
        layer = getattr(model, path)
        if layer is not None:  # e.g. a token classifier without a CRF
            heads[head.name] = named_weights(head.rows, layer, config, prefix=path)
            for index, block in enumerate(layer.blocks if head.block_rows else ()):
                place = f"{path}.blocks.{index}"
                heads[head.name] += named_weights(
                    head.block_rows, block, config, prefix=place, index=index
                )
    return heads


def architecture_of(model) -> str:
    """Returns BERT's class in Hugging Face with the heads that the model has."""
    spec = tasks.declared_spec(type(model))
    present = set(task_heads(model)) - {head.name for head in spec.optional_heads.values()}
    for other in (spec, *tasks.specs()):
        if {head.name for head in other.heads.values()} == present:
            return other.architectures[0]
    return tasks.declared_spec(BertBackbone).architectures[0]


def saved_options(model) -> dict:
    """Returns the arguments that a checkpoint stores; the others have their own files."""
    saved_elsewhere = ("name", "dtype", "backbone", "tokenizer")
    if backbone_of(model) is model:
        return {}
    return {key: v for key, v in model.get_config().items() if key not in saved_elsewhere}


def backbone_of(model):
    """Returns the `BertBackbone` of a model, which may be the model itself."""
    return getattr(model, "backbone", model)


def all_weights(model) -> list[Weight]:
    """Returns every weight of a model that a checkpoint holds."""
    backbone = backbone_of(model)
    heads = itertools.chain(*task_heads(model).values())
    return [*backbone_weights(backbone), *pooler_weights(backbone), *heads]


def model_class(name: str) -> type | None:
    """Returns the public model class of a name, or None if this version has no such class."""
    if name == BACKBONE:
        return BertBackbone
    spec = tasks.spec_of(name)
    return None if spec is None else spec.model_class()


def build_saved(path: str, name: str, backbone: BertBackbone, options: dict):
    """Builds a model of the class and with the arguments that the file `path` names.

    Raises `CheckpointError` if the arguments are not valid.
    """
    try:
        return backbone if name == BACKBONE else model_class(name)(backbone, **options)
    except (TypeError, ValueError) as error:
        raise file_error(path, f"hold valid arguments of {name}", error) from None
