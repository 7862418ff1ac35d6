"""Finds out which model a checkpoint of any format holds, by the names in it or by its heads."""

import os

from bert_tf import tasks
from bert_tf.checkpoints.assignment import find_biases, find_weights
from bert_tf.checkpoints.loading import build_model
from bert_tf.checkpoints.model_weights import task_heads
from bert_tf.checkpoints.opening import Pretrained, open_pretrained
from bert_tf.errors import UserError
from bert_tf.models.task_spec import EMBEDDINGS
from bert_tf.text.tokenizer import BertTokenizer


def build_recognised(pretrained: Pretrained, tokenizer: BertTokenizer | None = None):
    """Builds the model that a checkpoint's class or its heads indicate, to be filled.

    `tokenizer` is used instead of the checkpoint's.

    Raises:
        UserError: If an option in the checkpoint is out of range.
    """
    named = _named(pretrained)
    for spec in named if named or pretrained.class_name else _with_heads():
        if not _has_head(spec, pretrained):
            continue
        model = build_model(spec.model_class(), pretrained, tokenizer)
        if all(all(find_weights(pretrained.source, w)) for w in task_heads(model).values()):
            return model
    return pretrained.backbone_class(pretrained.config)


def servable_class(path: str | os.PathLike, config_file: str | None = None) -> type:
    """Returns the class with serving signatures for a checkpoint.

    A checkpoint of pre-training, which has two heads, is for masked words.

    Args:
        path: The checkpoint, as for `from_pretrained`.
        config_file: The configuration, if it is not in the directory of the weights.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        ConfigError: If its configuration is not supported.
        UserError: If the checkpoint has no head.

    Example:
        >>> from bert_tf.checkpoints.recognition import servable_class
        >>> servable_class("reviews/").__name__
        'BertTextClassifier'
        >>> servable_class("bert-base/").__name__  # a checkpoint of pre-training
        'BertMaskedLM'
    """
    pretrained = open_pretrained(path, config_file)
    for spec in (*_named(pretrained), *_with_heads()):
        if spec.serving and _has_head(spec, pretrained):
            return spec.model_class()
    for spec in _by_files(pretrained):
        return spec.model_class()
    name = next(spec.name for spec in tasks.specs() if EMBEDDINGS in spec.forms)
    raise UserError(
        f"The model must be named for a checkpoint without a trained head: --model={name} exports "
        f"vectors of texts. Received: --model=auto, and no head in {os.fspath(path)}"
    )


def find_task_class(path: str | os.PathLike) -> type:
    """Returns the class of the task model that the files of a directory name.

    Args:
        path: The checkpoint, as for `from_pretrained`.

    Raises:
        CheckpointError: If the checkpoint cannot be read.
        UserError: If the files name no task.

    Example:
        >>> bert_tf.checkpoints.find_task_class("reviews/").__name__
        'BertTextClassifier'
    """
    pretrained = open_pretrained(path)
    for spec in _named(pretrained) or _by_files(pretrained):
        return spec.model_class()
    raise UserError(
        "The model must be a task model, such as a classifier that `save_pretrained` wrote, "
        "or a directory of sentence-transformers. "
        f"Received: {pretrained.class_name or list(pretrained.architectures)}. Open it with the "
        "class of its task, then save or export it."
    )


def _by_files(pretrained):
    return [spec for spec in tasks.specs() if spec.task_files().recognises(pretrained.directory)]


def _with_heads():
    return [spec for spec in tasks.specs() if spec.heads]


def _named(pretrained):
    """Returns the specs of the classes and architectures that the files name."""
    architectures = set(pretrained.architectures)
    named = [spec for spec in _with_heads() if architectures.intersection(spec.architectures)]
    spec = tasks.spec_of(pretrained.class_name or "")
    return named if spec is None else [spec, *named]


def _has_head(spec, pretrained):
    """Returns whether the file holds the first bias of every head; else no model is built."""
    if pretrained.class_name == spec.model:
        return True
    biases = [find_biases(pretrained.source, head)[:1] for head in spec.heads.values()]
    return bool(biases) and all(any(found) for found in biases)
