"""Writes models as Hugging Face directories, TF1 checkpoints or in this package's own format."""

import logging
import os

import numpy as np

from bert_tf.base.array_files import write_safetensors
from bert_tf.base.files import recover, staged_files
from bert_tf.base.json_files import write_json
from bert_tf.checkpoints import own_format
from bert_tf.checkpoints.family_names import family_class, names_of
from bert_tf.checkpoints.opening import OWN_KEY, format_of
from bert_tf.checkpoints.own_format import quantized_tensors, quantized_variables
from bert_tf.checkpoints.weight_names import (
    OWN,
    Weight,
    all_weights,
    architecture_of,
    backbone_of,
    backbone_weights,
    class_name_of,
    pooler_weights,
    saved_options,
    task_heads,
)
from bert_tf.config import SWITCHES, BertConfig
from bert_tf.errors import ConfigError, UserError, require_one_of, user_error
from bert_tf.families.network_families import BERT, FAMILIES
from bert_tf.models.task_files import NetworksFiles
from bert_tf.tasks import declared_spec
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_files import refuse_other

_logger = logging.getLogger("bert_tf")

SAVED_FORMATS, AUTO = ("huggingface", "tf1", OWN), "auto"
TF1_PREFIX = "bert_model.ckpt"
# Keys that describe the file from which a config.json was read, not the network.
_STALE_KEYS = ("torch_dtype", "dtype", "problem_type", OWN_KEY)


def save_model(model, directory: str | os.PathLike, format: str | None = None) -> None:
    """Writes a backbone or a task model. See `TaskModel.save_pretrained`.

    The files are replaced atomically. If writing fails, the directory keeps its old files. If the
    process is killed, they are restored when the directory is next opened or saved to. Other files
    in the directory are kept.

    Args:
        model: A backbone or a task model.
        directory: The directory to write. It is created if missing.
        format: "huggingface", "tf1", "bert_tf" or "auto", which is "bert_tf" for a model that
            Hugging Face's cannot hold, else "huggingface". None is "huggingface", or "bert_tf" if
            Hugging Face has no names for the weights of the backbone.

    Raises:
        UserError: If `format` is unknown, the directory holds a checkpoint of another format or the
            `tokenizer.json` of another tokenizer, or the format cannot hold the model.
        CheckpointError: If an interrupted save cannot be undone.

    Example:
        >>> backbone = bert_tf.BertBackbone.from_pretrained("reviews/")
        >>> bert_tf.checkpoints.save_model(backbone, "backbone/", format="tf1")
    """
    given = format
    if format is None:
        weights = backbone_weights(backbone_of(model))
        format = "huggingface" if all(weight.parts["huggingface"] for weight in weights) else OWN
    if format == AUTO:
        format = OWN if _reason_against("huggingface", model) else "huggingface"
    require_one_of("format", format, (*SAVED_FORMATS, AUTO))
    _require_format_of(format, model, given)
    directory = os.fspath(directory)
    recover(directory)
    present = format_of(directory)
    if present not in (None, format):
        raise UserError(
            f"`directory` must not hold a checkpoint of another format than {format!r}. Received: "
            f"directory={directory!r}, which holds one of format {present!r} that would be read "
            "instead of the new one. Save to another directory."
        )
    tokenizer = getattr(model, "tokenizer", None)
    if isinstance(tokenizer, BertTokenizer):
        refuse_other(tokenizer.vocabulary, directory)
    with staged_files(directory) as staging:
        _WRITERS[format](model, staging)
        if tokenizer is not None:
            tokenizer.save_pretrained(staging)
        declared_spec(type(model)).task_files().write(model, staging, format)


def _require_format_of(format, model, given):
    """Refuses a format that cannot hold the model; `given` is None if it is the default."""
    reasons = {name: _reason_against(name, model) for name in SAVED_FORMATS}
    if reasons[format]:
        formats = " or ".join(repr(name) for name in SAVED_FORMATS if not reasons[name])
        default = "" if given else f", which is {format!r}"
        expected = f"be {formats} for a {type(model).__name__} of this network"
        raise user_error("`format`", expected, f"format={given!r}{default}. {reasons[format]}")


def _reason_against(format, model):
    """Returns why a format cannot hold a model; "" if it can."""
    config, is_known, switches = backbone_of(model).config, True, SWITCHES
    quantization = backbone_of(model).quantization
    if quantization is not None and format != OWN:
        return f"The model is quantized to {quantization}."
    if unnamed := [weight.name for weight in _own_weights(model) if not weight.parts[format]]:
        return f"It has no names for the weights {unnamed}."
    if format == "tf1":
        is_known = config.model_type == BERT and {*SWITCHES}.isdisjoint(config.to_dict())
    elif format == "huggingface":
        try:
            values = config.to_huggingface()
            read = BertConfig.from_huggingface(values, "config.json", config.model_type)
        except ConfigError as error:
            return str(error)
        switches = [name for name in SWITCHES if getattr(read, name) != getattr(config, name)]
        is_known = _huggingface_class(model) is not None and not switches
    named = {name: getattr(config, name) for name in ("model_type", *switches)}
    return "" if is_known else f"It has no name for this class with {named}"


def _huggingface_class(model):
    """Returns the class that a model is in Hugging Face, None if it is none of them."""
    name = architecture_of(model)
    if isinstance(declared_spec(type(model)).task_files(), NetworksFiles):
        return name
    return family_class(name, backbone_of(model).config.model_type)


def _write_huggingface(model, directory):
    heads = {weight.name for head in task_heads(model).values() for weight in head}
    files = declared_spec(type(model)).task_files()
    has_networks = isinstance(files, NetworksFiles)
    backbone_prefix = files.backbone_prefix if has_networks else "bert."
    tensors = {}
    for weight in _writable(model):
        # The encoder has a prefix in BertFor… models of `transformers`, not in BertModel.
        prefix = backbone_prefix if heads and weight.name not in heads else ""
        tensors.update(_tensors(weight, "huggingface", prefix))
    head, architecture = _head_config(model), _huggingface_class(model)
    if has_networks:
        config, tensors = files.config_of(model), files.by_their_names(tensors, model)
        head[OWN_KEY]["options"] = files.own_options(head[OWN_KEY]["options"])
    else:
        config = backbone_of(model).config.to_huggingface()
        tensors = names_of(tensors, backbone_of(model).config, architecture)
    for key in _STALE_KEYS:
        config.pop(key, None)
    if "id2label" in head:
        config.pop("num_labels", None)
    config.update({"architectures": [architecture], **head})
    write_safetensors(os.path.join(directory, "model.safetensors"), tensors)
    write_json(os.path.join(directory, "config.json"), config, sort_keys=True)


def _write_tf1(model, directory):
    import tensorflow as tf

    backbone = backbone_of(model)
    if backbone.config.hidden_act not in ("gelu_new", "relu"):
        _logger.warning(
            "google-research/bert has no activation %r. bert_tf reads it from bert_config.json; "
            "the original program would compute another activation.",
            backbone.config.hidden_act,
        )
    if backbone.config.pruned_heads:
        _logger.warning(
            "google-research/bert does not support pruned heads. bert_tf reads them from "
            "bert_config.json; the original program would expect kernels of other shapes."
        )
    tensors = {}
    for weight in _writable(model):
        tensors.update(_tensors(weight, "tf1", ""))
    config = {**backbone.config.to_tf1(), **_head_config(model)}
    tf.raw_ops.SaveV2(
        prefix=os.path.join(directory, TF1_PREFIX),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    write_json(os.path.join(directory, "bert_config.json"), config, sort_keys=True)


def _write_own(model, directory):
    backbone = backbone_of(model)
    tensors = {weight.name: weight.variable.numpy() for weight in _writable(model)}
    tensors.update(quantized_tensors(backbone))
    write_safetensors(os.path.join(directory, own_format.WEIGHTS_FILE), tensors)
    content = {"class": class_name_of(model), "options": saved_options(model)}
    content |= {"config": backbone.config.to_dict(), "format_version": own_format.VERSION}
    if registered := own_format.registered_backbone(backbone):
        content["backbone"] = registered
    if backbone.quantization is not None:
        content["quantization"] = backbone.quantization
    write_json(os.path.join(directory, own_format.CONFIG_FILE), content, sort_keys=True)


_WRITERS = {"huggingface": _write_huggingface, "tf1": _write_tf1, OWN: _write_own}


def _writable(model) -> list[Weight]:
    weights = _own_weights(model)
    backbone = backbone_of(model)
    variables = [
        *(weight.variable for weight in all_weights(model)),
        *declared_spec(type(model)).task_files().variables(model),
    ]
    known = set(map(id, [*variables, *quantized_variables(backbone)]))
    unknown = [variable.path for variable in model.weights if id(variable) not in known]
    if unknown:
        raise UserError(
            f"The model must have no variables other than those of bert_tf's models. Received: "
            f"{type(model).__name__} with {unknown}, for which checkpoints have no names. Save it "
            'with `model.save("….keras")`.'
        )
    return weights


def _own_weights(model) -> list[Weight]:
    """Returns the weights of a model, without a pooler that its checkpoint had not.

    If the random one were saved, readers would use it.
    """
    weights, backbone = all_weights(model), backbone_of(model)
    if backbone.pooler.is_missing and not getattr(model, "uses_pooler", True):
        pooler = {weight.name for weight in pooler_weights(backbone)}
        weights = [weight for weight in weights if weight.name not in pooler]
    return weights


def _tensors(weight: Weight, format: str, prefix: str) -> dict[str, np.ndarray]:
    """Returns the tensors of one weight in the layout of the file, as float32."""
    parts = weight.parts[format]
    widths = [part.shape[0] if part.transposed else part.shape[-1] for part in parts]
    values = weight.variable.numpy().astype(np.float32)
    pieces = np.split(values, np.cumsum(widths)[:-1], axis=-1)
    tensors = {}
    for part, piece in zip(parts, pieces):
        values = piece.reshape(part.shape[::-1]).T if part.transposed else piece
        tensors[prefix + part.names[0]] = np.ascontiguousarray(values).reshape(part.shape)
    return tensors


def _head_config(model) -> dict:
    """Returns the entries of config.json for a head: Hugging Face's keys and this package's."""
    if backbone_of(model) is model:
        return {}
    options = saved_options(model)
    values = {OWN_KEY: {"class": class_name_of(model), "options": options}}
    if isinstance(options.get("num_classes"), int):
        labels = options.get("labels") or [f"LABEL_{i}" for i in range(options["num_classes"])]
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    values.update(declared_spec(type(model)).task_files().config_values(model))
    if "problem_type" in options:
        values["problem_type"] = options["problem_type"]
    if "pooling" in options and backbone_of(model).config.pooler_use != "cls":
        values["classifier_pooling"] = options["pooling"]
    if isinstance(options.get("dropout"), (int, float)):
        keys = FAMILIES[backbone_of(model).config.model_type].keys
        values[keys.get("classifier_dropout", "classifier_dropout")] = options["dropout"]
    return values
