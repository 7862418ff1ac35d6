"""Finds out which model a checkpoint holds, by the names in it or by its heads, and converts it."""

import dataclasses
import logging
import os
from typing import Any

import keras
import numpy as np

from bert_tf import tasks
from bert_tf.checkpoints.assignment import assign_weights, find_biases, find_weights
from bert_tf.checkpoints.loading import build_model, weights_of
from bert_tf.checkpoints.opening import Pretrained, open_pretrained
from bert_tf.checkpoints.saving import save_model
from bert_tf.checkpoints.weight_names import backbone_of, task_heads
from bert_tf.errors import UserError
from bert_tf.models.task_spec import EMBEDDINGS
from bert_tf.tasks import declared_spec
from bert_tf.text.tokenizer import BertTokenizer


def build_recognised(pretrained: Pretrained, tokenizer: BertTokenizer | None = None):
    """Builds the model that a checkpoint's class or its heads indicate, to be filled.

    `tokenizer` is used instead of the checkpoint's. Raises `UserError` if an option in the
    checkpoint is out of range.
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
        >>> from bert_tf.checkpoints.conversion import servable_class
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


_logger = logging.getLogger("bert_tf")

# Lengths at which two models are compared, limited by the position table.
_LENGTHS = (1, 2, 17, 128)


@dataclasses.dataclass(frozen=True)
class Conversion:
    """The result of `convert`.

    Attributes:
        model: The model that was read.
        source_format: The format of the input.
        rows: For each tensor its name and shape in the input, and its names in the output; these
            are empty if it was not converted.
    """

    model: Any
    source_format: str
    rows: list[tuple[str, tuple[int, ...], str]]

    @property
    def config(self):
        """The model's `BertConfig`."""
        return backbone_of(self.model).config


def convert(
    path: str | os.PathLike,
    directory: str | os.PathLike,
    format: str,
    config_file: str | None = None,
    tokenizer: BertTokenizer | None = None,
) -> Conversion:
    """Reads a checkpoint of any format, including its heads, and writes it in another format.

    Args:
        path: The checkpoint, as for `from_pretrained`.
        directory: The directory to write.
        format: "huggingface", "tf1" or "bert_tf".
        config_file: The configuration, if it is not in the directory of the weights.
        tokenizer: The tokenizer whose files are written, instead of the checkpoint's.

    Returns:
        A `Conversion`.

    Raises:
        CheckpointError: If the input cannot be read, or an interrupted save cannot be undone.
        ConfigError: If the input's configuration is not supported.
        UserError: If the input is quantized, `format` is unknown or cannot hold the model, or
            `directory` holds a checkpoint of another format.

    Example:
        >>> conversion = bert_tf.checkpoints.convert("minilm/", "minilm-tf1/", format="tf1")
        >>> conversion.rows[0]
        ('embeddings.word_embeddings.weight', (30522, 384), 'bert/embeddings/word_embeddings')
    """
    pretrained = open_pretrained(path, config_file)
    if pretrained.quantization is not None:
        raise UserError(
            f"{path} must be a checkpoint with floating-point weights. Received: weights that are "
            f"quantized to {pretrained.quantization}. Convert the checkpoint from which it was "
            "made."
        )
    model, source = build_recognised(pretrained, tokenizer), pretrained.source
    plan, unused = assign_weights(source, weights_of(model, pretrained))
    if format == "tf1" and pretrained.config.hidden_act == "gelu":
        _logger.warning(
            'The network computes the exact (erf) GELU, but "gelu" in bert_config.json means the '
            "tanh form in google-research/bert. The key `bert_tf_exact_gelu` selects the exact "
            "form in bert_tf; the original program ignores it."
        )
    save_model(model, directory, format)
    rows = []
    for weight, read in plan:
        written = [part.names[0] for part in weight.parts[format]]
        if len(written) != len(read):
            written = [", ".join(written)] * len(read)
        rows += [(name, source.shapes[name], target) for name, target in zip(read, written)]
    rows += [(name, source.shapes[name], "") for name in unused]
    return Conversion(model, source.format, rows)


def largest_difference(one, other) -> float:
    """Returns the largest difference between the outputs of two models on random tokens."""
    config = backbone_of(one).config
    rng = np.random.default_rng(0)
    largest = 0.0
    for length in sorted({min(n, config.max_position_embeddings) for n in _LENGTHS}):
        inputs = {
            "token_ids": rng.integers(0, config.vocab_size, (2, length)).astype(np.int32),
            "segment_ids": rng.integers(0, config.type_vocab_size or 1, (2, length), np.int32),
            "padding_mask": np.arange(length) < np.array([[length], [(length + 1) // 2]]),
        }
        for name, each in declared_spec(type(one)).inputs.items():
            if each.is_given:
                inputs[name] = rng.random([2, *each.shape]).astype(each.dtype)
            elif each.sample is not None:
                shape = [2, *(size or 1 for size in each.shape)]
                inputs[name] = np.full(shape, each.sample, each.dtype)
        outputs = (keras.tree.flatten(model(inputs)) for model in (one, other))
        for a, b in zip(*outputs, strict=True):
            difference = np.asarray(a, np.float64) - np.asarray(b, np.float64)
            largest = max(largest, float(np.abs(difference).max()))
    return largest
