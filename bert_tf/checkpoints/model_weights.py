"""The weights and the class of a model, as checkpoints store them."""

import collections

from bert_tf import tasks
from bert_tf.checkpoints.weight_names import (
    Part,
    Weight,
    backbone_weights,
    head_weights,
    part_names,
    pooler_weights,
)
from bert_tf.errors import CheckpointError
from bert_tf.json_schema import object_of
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_spec import Head

BACKBONE = "BertBackbone"
# The arguments of a model's class in a file. The constructors refuse invalid combinations.
OPTIONS = object_of(tasks.options())
# The specs of the tasks by the name of the model's class.
SPECS = {spec.model: spec for spec in tasks.specs()}
# The architectures with a head: a file that names one of them has its head and no other.
HEAD_ARCHITECTURES = {name for spec in SPECS.values() if spec.heads for name in spec.architectures}


def _shared_heads():
    """Returns the names of heads whose layers share Hugging Face names with other heads."""
    heads = {head.name: head for spec in SPECS.values() for head in spec.heads.values()}
    names = {
        name: {
            layer for row in head.rows if row.huggingface for layer in row.huggingface.split("|")
        }
        for name, head in heads.items()
    }
    counts = collections.Counter(layer for layers in names.values() for layer in layers)
    return {name for name, layers in names.items() if any(counts[layer] > 1 for layer in layers)}


# A file that has such a head may have it for another task.
AMBIGUOUS_HEADS = frozenset(_shared_heads())


def heads_of(model_class: type) -> dict[str, Head]:
    """Returns a class's heads by attribute, without optional ones; empty for a user's class."""
    spec = tasks.spec_of(model_class)
    return {} if spec is None else spec.heads


def architectures_of(model_class: type) -> tuple[str, ...]:
    """Returns the classes of Hugging Face that correspond to a model class."""
    spec = tasks.spec_of(model_class)
    return ("BertModel",) if spec is None else spec.architectures


def class_name_of(model) -> str:
    """Returns the name of a model's public class, also for a user's subclass of it."""
    for base in type(model).__mro__:
        if base.__name__ in (*SPECS, BACKBONE):
            return base.__name__
    return type(model).__name__


def task_heads(model) -> dict[str, list[Weight]]:
    """Returns the weights of each of a model's heads, by the head's name."""
    config = backbone_of(model).config
    spec = tasks.spec_of(type(model))
    heads = {}
    for path, head in ({**spec.heads, **spec.optional_heads} if spec else {}).items():
        layer = getattr(model, path)
        if layer is not None:  # e.g. a token classifier without a CRF
            heads[head.name] = head_weights(head, layer, path, config)
    return heads


def architecture_of(model) -> str:
    """Returns the class of Hugging Face with the heads that the model has."""
    spec = tasks.spec_of(type(model))
    if spec is None:
        return "BertModel"
    present = set(task_heads(model)) - {head.name for head in spec.optional_heads.values()}
    for other in (spec, *SPECS.values()):
        if {head.name for head in other.heads.values()} == present:
            return other.architectures[0]
    return "BertModel"


def saved_options(model) -> dict:
    """Returns the arguments that a checkpoint stores; the others have their own files."""
    saved_elsewhere = ("name", "dtype", "backbone", "tokenizer")
    if backbone_of(model) is model:
        return {}
    return {key: v for key, v in model.get_config().items() if key not in saved_elsewhere}


def head_parts(head: Head, variable: str, format: str) -> tuple[Part, ...]:
    """Returns the names of one variable of a head in a format, without their shapes."""
    return tuple(
        Part(part_names(row, format, variable), (), ())
        for row in head.rows
        if getattr(row, format, None) is not None
    )


def backbone_of(model):
    """Returns the `BertBackbone` of a model, which may be the model itself."""
    return getattr(model, "backbone", model)


def uses_pooler(model) -> bool:
    """Returns whether the outputs of a model depend on its pooler."""
    if getattr(model, "next_sentence", True) is None:  # pre-training without this head
        return False
    spec = tasks.spec_of(type(model))
    return (spec is None or spec.uses_pooler) and getattr(model, "pooling", "cls") == "cls"


def all_weights(model) -> list[Weight]:
    """Returns every weight of a model that a checkpoint holds."""
    backbone = backbone_of(model)
    weights = backbone_weights(backbone) + pooler_weights(backbone)
    for head in task_heads(model).values():
        weights += head
    return weights


def model_class(name: str) -> type | None:
    """Returns the public model class of a name, or None if this version has no such class."""
    if name == BACKBONE:
        return BertBackbone
    return SPECS[name].model_class() if name in SPECS else None


def build_saved(path: str, name: str, backbone: BertBackbone, options: dict):
    """Builds a model of the class and with the arguments that a file names.

    Raises:
        CheckpointError: If the arguments are not valid.
    """
    try:
        return backbone if name == BACKBONE else model_class(name)(backbone, **options)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} must hold valid arguments of {name}. Received: {error}"
        ) from None
