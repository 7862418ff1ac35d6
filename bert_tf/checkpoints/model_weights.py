"""The weights and the class of a model, as checkpoints store them."""

import collections
import dataclasses
import itertools
from typing import Any

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.json_schema import OBJECT, Kind, may_lack, object_of
from bert_tf.checkpoints.weight_names import Weight, backbone_weights, named_weights, pooler_weights
from bert_tf.config import BertConfig
from bert_tf.models.backbone import BertBackbone

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
