"""Opens a checkpoint: finds out what it is, builds the model, loads the weights."""

import dataclasses
import inspect
import logging
import os

from bert_tf.checkpoints.assignment import assign_weights, has_weights
from bert_tf.checkpoints.tensor_source import TensorSource, huggingface_source
from bert_tf.checkpoints.tf1_source import Tf1Source, checkpoint_prefix
from bert_tf.checkpoints.weight_names import (
    classifier_weights,
    embedding_and_encoder_weights,
    pooler_weights,
)
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError, UserError

_logger = logging.getLogger("bert_tf")

# Where this package keeps what Hugging Face's config.json has no key for.
OWN_KEY = "bert_tf"


@dataclasses.dataclass(frozen=True)
class Pretrained:
    """An opened checkpoint.

    Attributes:
        directory: Where its files are.
        config: Its configuration.
        source: Its tensors.
    """

    directory: str
    config: BertConfig
    source: TensorSource


def open_pretrained(path: str | os.PathLike, config_file: str | None = None) -> Pretrained:
    """Finds out by looking what stands at `path`.

    Args:
        path: A Hugging Face directory, a TF1 checkpoint directory or a TF1 checkpoint's prefix.
        config_file: The configuration, if it is not beside the weights.

    Raises:
        CheckpointError: If it is neither, or a file is missing or damaged.
    """
    path = os.fspath(path)
    directory = path if os.path.isdir(path) else os.path.dirname(path)
    prefix = checkpoint_prefix(path)
    if prefix is None and not os.path.isdir(path):
        raise CheckpointError(f"Expected a checkpoint directory or prefix. Received: {path}")
    if prefix is not None:
        config = BertConfig.from_json_file(
            config_file or _existing(directory, "bert_config.json", "config.json")
        )
        return Pretrained(directory, config, Tf1Source(prefix))
    config = BertConfig.from_json_file(
        config_file or _existing(directory, "config.json", "bert_config.json")
    )
    return Pretrained(directory, config, huggingface_source(directory))


def _existing(directory, *names):
    for name in names:
        if os.path.exists(os.path.join(directory, name)):
            return os.path.join(directory, name)
    raise CheckpointError(
        f"Expected {' or '.join(names)} in {directory or '.'}. "
        f"Found: {sorted(os.listdir(directory or '.'))}"
    )


def load_backbone(path, backbone_class=None, config_file=None, **options):
    """Builds a `BertBackbone` (or a subclass) from a checkpoint. See `BertBackbone.from_pretrained`."""
    from bert_tf.models.backbone import BertBackbone

    pretrained = open_pretrained(path, config_file)
    backbone = (backbone_class or BertBackbone)(pretrained.config, **options)
    assign_weights(pretrained.source, _backbone_weights(backbone, pretrained.source))
    return backbone


def load_task_model(model_class, path, config_file=None, tokenizer=None, **options):
    """Builds a task model from a checkpoint. See `TaskModel.from_pretrained`."""
    from bert_tf.models.backbone import BertBackbone
    from bert_tf.text.tokenizer import BertTokenizer

    pretrained = open_pretrained(path, config_file)
    accepted = _argument_names(model_class) | _argument_names(BertBackbone)
    unknown = set(options) - accepted
    if unknown:
        raise UserError(
            f"{model_class.__name__}.from_pretrained takes {sorted(accepted)}. "
            f"Received: {sorted(unknown)}"
        )
    saved = _saved_head_options(pretrained.config) if model_class is _classifier_class() else {}
    if any(options.get(name) is not None for name in ("labels", "num_classes")):
        saved.pop("labels", None)
    head_options = {**saved, **options}
    backbone_options = {
        name: head_options.pop(name)
        for name in _argument_names(BertBackbone) - {"name"}
        if name in head_options
    }
    if "dtype" in backbone_options:
        head_options["dtype"] = backbone_options["dtype"]
    backbone = BertBackbone(pretrained.config, **backbone_options)
    if tokenizer is None:
        tokenizer = BertTokenizer.from_pretrained(pretrained.directory)
    model = model_class(backbone, tokenizer=tokenizer, **head_options)

    weights = _backbone_weights(backbone, pretrained.source)
    head = classifier_weights(model)
    if has_weights(pretrained.source, head):
        weights += head
    else:
        _logger.info("%s has no classifier; it starts at random.", pretrained.source.path)
    assign_weights(pretrained.source, weights)
    return model


def _backbone_weights(backbone, source):
    weights = embedding_and_encoder_weights(backbone)
    pooler = pooler_weights(backbone)
    if has_weights(source, pooler):
        return weights + pooler
    _logger.warning(
        "%s has no pooler; it starts at random. Use another pooling than 'cls', or fine-tune it.",
        source.path,
    )
    return weights


def _classifier_class():
    from bert_tf.models.text_classifier import BertTextClassifier

    return BertTextClassifier


def _argument_names(model_class):
    names = set()
    for base in model_class.__mro__:
        if base.__module__.startswith("bert_tf."):
            parameters = inspect.signature(base.__init__).parameters.values()
            names |= {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return (names | {"name", "dtype"}) - {"self", "config", "backbone", "tokenizer"}


def _saved_head_options(config: BertConfig) -> dict:
    """The head of a saved classifier: this package's own key, and Hugging Face's labels."""
    options = dict(config.extra.get(OWN_KEY, {}))
    labels = config.extra.get("id2label")
    if isinstance(labels, dict) and len(labels) >= 2:
        options["labels"] = [str(labels[key]) for key in sorted(labels, key=int)]
    return options
