"""The description of a SavedModel: the inputs and outputs of every signature, and the labels."""

import os

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import (
    FLAG,
    integer,
    list_of,
    mapping_of,
    may_lack,
    object_of,
    optional,
    text,
)
from bert_tf.models.serving_module import ServingModule

# The folder `assets.extra` holds files that the graph does not load.
DESCRIPTION_FILE = "bert_tf.json"
_FIELDS = mapping_of(
    object_of({"dtype": text(), "shape": list_of(integer(least=-1)), "meaning": text()})
)
_DESCRIPTION = object_of(
    {
        "model": text(),
        "version": integer(most=2**63 - 1),
        "portable": FLAG,
        "max_length": optional(integer()),
        "labels": may_lack(list_of(text())),
        "signatures": mapping_of(object_of({"inputs": _FIELDS, "outputs": _FIELDS})),
    }
)


def describe(module: ServingModule, functions: dict, **facts) -> dict:
    """Describes a SavedModel as JSON values; `functions` has a concrete function per signature.

    The result has the entries of `_DESCRIPTION`, `facts`, and for an input `ServingModule.limits`.
    """
    signatures = {}
    for name, function in functions.items():
        input_meanings, output_meanings = module.meanings(name)
        _, inputs = function.structured_input_signature
        limits = module.limits(name)
        signatures[name] = {
            "inputs": {
                field: {**shown, **limits.get(field, {})}
                for field, shown in _fields(inputs, input_meanings).items()
            },
            "outputs": _fields(function.structured_outputs, output_meanings),
        }
    return {
        "model": type(module.model).__name__,
        **facts,
        "max_length": module.max_length,
        **module.details(),
        "signatures": signatures,
    }


def read_description(directory: str | os.PathLike) -> dict:
    """Reads the description that `export` wrote into a SavedModel's directory; see `describe`.

    Raises:
        CheckpointError: If there is no description or it is not valid.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> read_description(bert_tf.serving.export(classifier, "served"))["labels"]
        ['bad', 'good']
    """
    return read_json(os.path.join(directory, "assets.extra", DESCRIPTION_FILE), _DESCRIPTION)


def as_text(description: dict) -> str:
    """Returns a description as text for people."""
    lines = [f"{description['model']}, version {description['version']}"]
    for name, signature in description["signatures"].items():
        lines.append(f"  {name}")
        for side, arrow in (("inputs", "<-"), ("outputs", "->")):
            for field, facts in signature[side].items():
                shape = ", ".join("?" if size == -1 else str(size) for size in facts["shape"])
                lines.append(f"    {arrow} {field}: {facts['dtype']} [{shape}]  {facts['meaning']}")
    if description.get("labels"):
        lines.append(f"  labels: {', '.join(description['labels'])}")
    return "\n".join(lines)


def _fields(specs, meanings):
    return {
        name: {
            "dtype": specs[name].dtype.name,
            "shape": [-1 if size is None else size for size in specs[name].shape],
            "meaning": meaning,
        }
        for name, meaning in meanings.items()
        if name in specs
    }
