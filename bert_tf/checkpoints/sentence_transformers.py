"""Reads and writes the files of sentence-transformers: pooling, dense layer, normalization, length.

Reference: sentence-transformers, `modules.json`, `1_Pooling/config.json`, `2_Dense/` and
`sentence_bert_config.json` of its saved models.
"""

import os

import numpy as np

from bert_tf.array_files import write_safetensors
from bert_tf.checkpoints.assignment import read_floats
from bert_tf.checkpoints.huggingface_files import open_weights, weights_file
from bert_tf.checkpoints.loading import load_task_model
from bert_tf.checkpoints.opening import resolve
from bert_tf.checkpoints.readers.file_errors import file_error, tensor_error
from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.json_files import read_json, write_json
from bert_tf.json_schema import (
    FLAG,
    Kind,
    either,
    integer,
    is_file_name,
    list_of,
    mapping_of,
    may_lack,
    object_of,
    optional,
    text,
)

_MODULES_FILE = "modules.json"
_PROMPT_OPTIONS = ("prompts", "default_prompt_name")
_LENGTH_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
# Since version 5.7, one key holds the mode or a list of modes in the order of concatenation.
_POOLING_KEY = "pooling_mode"
_INCLUDE_PROMPT = "include_prompt"
_MEAN_MAX = ["mean", "max"]
_TYPES = "sentence_transformers.models."
_IDENTITY = "torch.nn.modules.linear.Identity"
_KERNEL, _BIAS = "linear.weight", "linear.bias"

_FOLDER = Kind(
    "empty or the path of a folder in the directory",
    lambda value: (
        value == ""
        or (isinstance(value, str) and all(map(is_file_name, value.rstrip("/").split("/"))))
    ),
)
_MODULES = list_of(object_of({"type": text(), "path": _FOLDER}), most=100)
_MODE = either(text(), list_of(text(), most=10))
_POOLING_FILE = object_of(
    {_POOLING_KEY: may_lack(_MODE), **dict.fromkeys([*_POOLING, _INCLUDE_PROMPT], may_lack(FLAG))}
)
_ACTIVATION = may_lack(text())
_DENSE = object_of(
    {"activation_function": _ACTIVATION, "bias": may_lack(FLAG), "out_features": integer(least=1)}
)
_LENGTHS = object_of({"max_seq_length": optional(integer())})
_PROMPTS = object_of(
    {"prompts": optional(mapping_of(text())), "default_prompt_name": optional(text())}
)


def load_sentence_encoder(encoder_class: type, path: str | os.PathLike, **options):
    """Builds the encoder of a checkpoint directory. See `BertSentenceEncoder.from_pretrained`.

    `options` are those of `load_task_model`; they override those in the directory.

    Raises:
        CheckpointError: If a file cannot be read or the modules are not supported.
        ConfigError: If the configuration describes a network that is not supported.
        UserError: If an option is unknown or out of range.
    """
    path = resolve(path)
    options = {**encoder_options(path), **options}
    if options.get("whitening_size") is not None:
        whitening_source(path, options["whitening_size"])  # check before allocating memory
    encoder = load_task_model(encoder_class, path, **options)
    if encoder.whitening is not None:
        load_whitening(encoder.whitening, path)
    return encoder


def encoder_options(directory: str | os.PathLike) -> dict:
    """Returns the arguments of `BertSentenceEncoder` that a checkpoint directory specifies.

    These are `pooling`, `normalize` and, if the files specify them, `whitening_size`, `max_length`,
    `prompts` and `default_prompt_name`; none if there is no `modules.json`.

    Raises:
        CheckpointError: If the modules are other than Transformer, Pooling, Dense without an
            activation and Normalize, in this order, or `BertSentenceEncoder` does not support the
            pooling.
    """
    directory = os.fspath(directory)
    path = os.path.join(directory, _MODULES_FILE)
    if not os.path.exists(path):
        return {}
    options, pools_prompts = {"normalize": False}, True
    for kind, module_path in _modules(directory):
        if kind == "Pooling":
            options["pooling"], pools_prompts = _pooling(os.path.join(module_path, "config.json"))
        elif kind == "Dense" and not options["normalize"] and "whitening_size" not in options:
            options["whitening_size"] = _linear_size(os.path.join(module_path, "config.json"))
        elif kind == "Normalize":
            options["normalize"] = True
        elif kind != "Transformer":
            expected = "be Transformer, Pooling, Dense (at most once) and Normalize, in this order"
            raise file_error(f"`type` in {path}", expected, f"type={kind!r}")
    limits = os.path.join(directory, _LENGTH_FILE)
    if os.path.exists(limits):
        longest = read_json(limits, _LENGTHS).get("max_seq_length")
        options.update({"max_length": longest} if longest else {})
    prompts = os.path.join(directory, _PROMPTS_FILE)
    if os.path.exists(prompts):
        values = read_json(prompts, _PROMPTS)
        options.update({name: value for name, value in values.items() if name in _PROMPT_OPTIONS})
        if any((values.get("prompts") or {}).values()) and not pools_prompts:
            received = f"{_INCLUDE_PROMPT}=false and prompts in {_PROMPTS_FILE}"
            raise file_error(directory, "pool the tokens of prompts with the others", received)
    return options


def whitening_source(directory: str | os.PathLike, size: int) -> TensorSource:
    """Opens the weights of a directory's Dense module, whose output vectors must have `size`.

    Raises:
        CheckpointError: If the directory has no such module or the size differs.
    """
    directory = os.fspath(directory)
    has_modules = os.path.exists(os.path.join(directory, _MODULES_FILE))
    paths = [path for kind, path in _modules(directory) if kind == "Dense"] if has_modules else []
    file = weights_file(paths[0]) if paths else None
    if file is None:
        expected = f"hold the weights of a Dense module for whitening_size={size}"
        received = "no such weights. Pass whitening_size=None and fit the whitening again."
        raise file_error(directory, expected, received)
    source = open_weights(file)
    _require_shape(source, _BIAS, (size,))
    return source


def _require_shape(source, name, shape):
    if source.shapes.get(name) != shape:
        received = f"shape={source.shapes.get(name)}"
        raise tensor_error(source, name, f"have shape {shape}", received)


def load_whitening(layer, directory: str | os.PathLike) -> None:
    """Loads the weights of a `Whitening` layer from the Dense module of a directory.

    Raises:
        CheckpointError: If they are damaged or do not fit the layer.
    """
    source = whitening_source(directory, layer.units)
    _require_shape(source, _KERNEL, tuple(reversed(layer.kernel.shape)))
    kernel, bias = (np.array(read_floats(source, name)) for name in (_KERNEL, _BIAS))
    layer.kernel.assign(kernel.T)
    layer.bias.assign(bias)


def module_variables(model) -> list:
    """Returns the variables that `write_modules` writes; `weight_names` does not have them."""
    whitening = getattr(model, "whitening", None)
    return [] if whitening is None else whitening.variables


def write_modules(encoder, directory: str) -> None:
    """Writes the files that sentence-transformers needs in addition to those of the encoder."""
    config = encoder.backbone.config
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    if encoder.pooling == "mean_max":
        pooling = {"embedding_dimension": config.hidden_size, _POOLING_KEY: _MEAN_MAX}
    else:
        pooling = {key: mode == encoder.pooling for key, mode in _POOLING.items()}
        pooling = {"word_embedding_dimension": config.hidden_size, **pooling}
    _write(pooling, os.path.join(directory, "1_Pooling", "config.json"))
    if encoder.whitening is not None:
        modules.append(("Dense", "2_Dense"))
        kernel, bias = encoder.whitening.kernel.numpy(), encoder.whitening.bias.numpy()
        folder = os.path.join(directory, "2_Dense")
        dense = {"in_features": kernel.shape[0], "out_features": kernel.shape[1]}
        dense.update(bias=True, activation_function=_IDENTITY)
        _write(dense, os.path.join(folder, "config.json"))
        tensors = {_KERNEL: np.ascontiguousarray(kernel.T), _BIAS: bias}
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    if encoder.normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": _TYPES + kind}
        for index, (kind, path) in enumerate(modules)
    ]
    _write(entries, os.path.join(directory, _MODULES_FILE))
    # The tokenizer's files specify whether text is lowercased.
    limits = {"max_seq_length": encoder.max_length, "do_lower_case": False}
    _write(limits, os.path.join(directory, _LENGTH_FILE))
    prompts = {name: getattr(encoder, name) for name in _PROMPT_OPTIONS}
    prompts["similarity_fn_name"] = "cosine"
    _write(prompts, os.path.join(directory, _PROMPTS_FILE))


def _modules(directory):
    """Returns pairs of each module's type and directory."""
    modules = read_json(os.path.join(directory, _MODULES_FILE), _MODULES)
    return [(m["type"].rpartition(".")[2], os.path.join(directory, m["path"])) for m in modules]


def _pooling(path):
    """Returns the pooling, and whether it includes the tokens of prompts."""
    values = read_json(path, _POOLING_FILE)
    return _pooling_mode(path, values), values.get(_INCLUDE_PROMPT, True)


def _pooling_mode(path, values):
    if _POOLING_KEY in values:
        modes = values[_POOLING_KEY]
        if modes == _MEAN_MAX:
            return "mean_max"
        for mode in _POOLING.values():
            if modes in (mode, [mode]):
                return mode
        received = f"{_POOLING_KEY}={modes!r:.200}"
        expected = f"be cls, mean, max or {_MEAN_MAX}"
        raise file_error(f"`{_POOLING_KEY}` in {path}", expected, received)
    wanted = [name for name in values if name.startswith("pooling_mode_") and values[name] is True]
    modes = [_POOLING.get(name) for name in wanted]
    if len(modes) != 1 or modes[0] is None:
        raise file_error(path, f"set exactly one of {sorted(_POOLING)} to true", wanted)
    return modes[0]


def _linear_size(path):
    values = read_json(path, _DENSE)
    # If the key is missing, the activation is tanh.
    if values.get("activation_function") != _IDENTITY or values.get("bias") is False:
        expected = f"describe a Dense module with a bias and the activation {_IDENTITY}"
        activation = f"activation_function={values.get('activation_function')!r:.200}"
        raise file_error(path, expected, f"{activation}, bias={values.get('bias')!r}")
    return values["out_features"]


def _write(values, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, values)
