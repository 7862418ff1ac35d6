"""The tasks, one folder each.

A new task is a folder with a `SPEC` in its `__init__.py`, and its name here. CONTRIBUTING.md shows
how to write one.
"""

import functools
import importlib
from typing import Any

from bert_tf.base.json_schema import Kind
from bert_tf.models.task_spec import MAX_LENGTH, TaskSpec

# The order is that in which the heads of a checkpoint are recognised.
NAMES = (
    "pretraining",
    "masked_lm",
    "next_sentence_prediction",
    "question_answering",
    "text_classification",
    "token_classification",
    "extractive_summarization",
    "multiple_choice",
    "sentence_embedding",
    "feature_extraction",
    "encoder_decoder",
    "prefix_lm",
    "replaced_token_detection",
    "cross_encoder",
    "late_interaction",
    "sparse_embedding",
)


@functools.cache
def specs() -> tuple[TaskSpec, ...]:
    """Returns the specs of all tasks.

    Example:
        >>> bert_tf.tasks.specs()[0].model
        'BertPretrainer'
    """
    found = tuple(importlib.import_module(f"bert_tf.tasks.{name}").SPEC for name in NAMES)
    names, models = [spec.name for spec in found], [spec.model for spec in found]
    if names != list(NAMES) or len(set(models)) < len(models):
        raise ValueError(
            "The `model` of every SPEC must be its own, and its `name` its folder's. "
            f"Received: name={names}, model={models}"
        )
    written: dict[str, list] = {}
    for spec in found:
        heads = list(spec.heads.values())
        if heads and written.setdefault(spec.architectures[0], heads) != heads:
            raise ValueError(
                "SPECs with the same first architecture must have the same heads. Received: "
                f"{spec.name}, architectures={spec.architectures}"
            )
    return found


@functools.cache
def options() -> dict[str, Kind]:
    """Returns the types and ranges of the options of all tasks, as files store them.

    Other keys in a file are arguments of the user's own classes. They are not passed to
    constructors of this package.

    Example:
        >>> bert_tf.tasks.options()["doc_stride"].expected
        'a positive integer of at most 2147483647'
    """
    kinds = {"max_length": MAX_LENGTH}
    for spec in specs():
        for name, kind in spec.options.items():
            if kinds.setdefault(name, kind) is not kind:
                raise ValueError(
                    f"An option of several tasks must have one kind. Received: {name} in the SPEC "
                    f"of {spec.name}, which another task has with another kind"
                )
    return kinds


def option_values(model) -> dict[str, Any]:
    """Returns the options of a task model by their names: what its class adds to `get_config`.

    Example:
        >>> values = option_values(bert_tf.BertSentenceEncoder.from_pretrained("minilm/"))
        >>> values["pooling"], values["normalize"]
        ('mean', True)
    """
    values = {name: getattr(model, name) for name in spec_of(type(model)).options}
    # Keras keeps lists and dictionaries as its own types.
    for kind in (list, dict):
        values = {name: kind(v) if isinstance(v, kind) else v for name, v in values.items()}
    return values


def spec_of(model: type | str) -> TaskSpec | None:
    """Returns the spec of a model's class or of a subclass; of a class name.

    Returns:
        None for a backbone and for a class that this package does not know.

    Example:
        >>> spec_of("BertSentenceEncoder").name
        'sentence_embedding'
        >>> spec_of(bert_tf.BertBackbone) is None
        True
    """
    by_name = {spec.model: spec for spec in specs()}
    if isinstance(model, str):
        return by_name.get(model)
    for base in model.__mro__:
        if base.__name__ in by_name and base.__module__.startswith("bert_tf."):
            return by_name[base.__name__]
    return None
