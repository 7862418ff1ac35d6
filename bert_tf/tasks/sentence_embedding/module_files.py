"""Reads and writes the files of sentence-transformers: pooling, dense layers, prompts, length.

Reference: sentence-transformers, `modules.json`, `1_Pooling/config.json`, `2_Dense/`, `LayerNorm`
and `sentence_bert_config.json` of its saved models.
"""

import os

import keras
import numpy as np

from bert_tf.base import hooks
from bert_tf.base.array_files import write_safetensors
from bert_tf.base.file_errors import file_error, tensor_error
from bert_tf.base.json_files import read_json, write_json
from bert_tf.base.json_schema import (
    FLAG,
    check,
    either,
    integer,
    list_of,
    may_lack,
    object_of,
    one_of,
    optional,
    text,
)
from bert_tf.base.tensor_source import TensorSource, read_floats
from bert_tf.errors import CheckpointError, UserError, require
from bert_tf.layers.activation import ACTIVATIONS
from bert_tf.layers.vector_projection import DENSE, LAYER_NORM, VectorProjection
from bert_tf.models.task_files import TaskFiles
from bert_tf.tasks.shared import module_files
from bert_tf.text.tokenizer_files import TOKENIZER_FILE

_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
# Since version 5.7, one key holds the mode or a list of modes in the order of concatenation.
_POOLING_KEY = "pooling_mode"
_INCLUDE_PROMPT = "include_prompt"
_MEAN_MAX = ["mean", "max"]
_VECTOR = "sentence_embedding"
_TYPES = "sentence_transformers.models."
_ACTIVATIONS = {name: each.torch_name for name, each in ACTIVATIONS.items() if each.torch_name}
_WEIGHTS_FILE = "model.safetensors"
# The names of a layer's weights by those in Keras.
_NAMES = {
    DENSE: {"kernel": "linear.weight", "bias": "linear.bias", "residual_kernel": "residual.weight"},
    LAYER_NORM: {"gamma": "norm.weight", "beta": "norm.bias"},
}
_KINDS = {"Dense": DENSE, "LayerNorm": LAYER_NORM}
_STATIC = "StaticEmbedding"
_STATIC_TYPE = "model2vec"
_LONGEST = 512  # tokens that model2vec reads, if its file says nothing else
_NUM_ENDS = 2  # `max_length` counts the tokens around a text
_STATIC_FILE = object_of({"max_length": optional(integer(least=1)), "normalize": may_lack(FLAG)})
_LAYER_MEAN = "WeightedLayerPooling"
_LAYER_WEIGHTS = "layer_weights"

_MODE = either(text(), list_of(text(), most=10))
_POOLING_FILE = object_of(
    {_POOLING_KEY: may_lack(_MODE), **dict.fromkeys([*_POOLING, _INCLUDE_PROMPT], may_lack(FLAG))}
)
_LAYER_MEAN_FILE = object_of({"layer_start": integer(least=0)})
_DENSE = object_of(
    {
        "activation_function": optional(one_of(*_ACTIVATIONS.values())),
        "bias": may_lack(FLAG),
        "out_features": integer(least=1),
        "module_input_name": may_lack(one_of(_VECTOR)),
        "module_output_name": optional(one_of(_VECTOR)),
        "use_residual": may_lack(FLAG),
    }
)


def load_sentence_encoder(encoder_class: type, path: str | os.PathLike, **options):
    """Builds the encoder of a checkpoint directory. See `BertSentenceEncoder.from_pretrained`.

    `options` are those of `load_task_model`; they override those in the directory.

    Raises:
        CheckpointError: If a file cannot be read or the modules are not supported.
        ConfigError, UserError: See `load_task_model`.
    """
    path = hooks.resolve(path)
    found = encoder_options(path)
    options = {**found, **options}
    size = options.get("whitening_size")
    steps = VectorProjection(options.get("projection") or []).steps  # with all keys
    has_same_steps = steps == (found.get("projection") or [])
    if size is not None and (size != found.get("whitening_size") or not has_same_steps):
        expected = f"hold the weights of a Dense module for whitening_size={size}"
        received = f"{found.get('whitening_size')} and projection={found.get('projection')}"
        fix = "Pass whitening_size=None and fit the whitening again."
        raise file_error(path, expected, f"{received}. {fix}")
    steps = [*steps, {"type": DENSE, "units": size}] if size is not None else steps
    folders = module_files.read_modules(path)
    dense = [folder for kind, folder in folders if kind in _KINDS]
    sources = []
    if has_same_steps:  # else the layers are new
        sources = list(map(_source, steps, dense))  # before memory is allocated
    encoder = hooks.load_task_model(encoder_class, path, **options)
    for layer, source in zip(_layers(encoder), sources):
        _load(layer, source)
    if encoder.layer_start is not None and encoder.layer_start == found.get("layer_start"):
        (folder,) = (folder for kind, folder in folders if kind == _LAYER_MEAN)
        _assign(encoder.scalar_mix.layer_weights, hooks.folder_weights(folder), _LAYER_WEIGHTS)
    return encoder


def encoder_options(directory: str | os.PathLike) -> dict:
    """Returns the arguments of `BertSentenceEncoder` that a checkpoint directory specifies.

    These are `pooling`, `normalize` and, if the files specify them, `layer_start`, `projection`,
    `whitening_size` (of a Dense without activation that comes last), `max_length`, `prompts` and
    `default_prompt_name`; none if there is no `modules.json`.

    Raises:
        CheckpointError: If the modules are other than Transformer, WeightedLayerPooling, Pooling
            or StaticEmbedding, Dense or LayerNorm, and Normalize, in this order, or
            `BertSentenceEncoder` does not support the pooling.
    """
    directory = os.fspath(directory)
    modules = module_files.read_modules(directory)
    if not modules:
        return {}
    options, pools_prompts, steps = {"normalize": False}, True, []
    for kind, module_path in modules:
        if kind == "Pooling":
            config = os.path.join(module_path, "config.json")
            pooling = read_json(config, _POOLING_FILE)
            options["pooling"] = _pooling_mode(config, pooling)
            pools_prompts = pooling.get(_INCLUDE_PROMPT, True)
        elif kind == _LAYER_MEAN and not options.keys() & {"pooling", "layer_start"}:
            config = os.path.join(module_path, "config.json")
            options["layer_start"] = read_json(config, _LAYER_MEAN_FILE)["layer_start"]
        elif kind in _KINDS and not options["normalize"]:
            steps.append(_step(kind, os.path.join(module_path, "config.json")))
        elif kind == "Normalize":
            options["normalize"] = True
        elif kind == _STATIC:
            options["pooling"] = "mean"
        elif kind != "Transformer":
            expected = (
                "be Transformer, WeightedLayerPooling, Pooling or StaticEmbedding, Dense or "
                "LayerNorm, and Normalize, in this order"
            )
            path = os.path.join(directory, module_files.MODULES_FILE)
            raise file_error(f"`type` in {path}", expected, f"type={kind!r}")
    whitening = {"type": DENSE, "activation": "linear", "use_bias": True, "use_residual": False}
    if steps and whitening.items() <= steps[-1].items():
        options["whitening_size"] = steps.pop()["units"]
    if steps:
        options["projection"] = steps
    shared = module_files.shared_options(directory)
    if any((shared.get("prompts") or {}).values()) and not pools_prompts:
        received = f"{_INCLUDE_PROMPT}=false and prompts in {module_files.MODEL_FILE}"
        raise file_error(directory, "pool the tokens of prompts with the others", received)
    options.update(shared)
    return options


class SentenceEmbeddingFiles(TaskFiles):
    """The modules of a `SentenceTransformer`; `load_sentence_encoder` reads them."""

    def load(self, model_class, path, **options):
        return load_sentence_encoder(model_class, path, **options)

    def recognises(self, directory):
        return bool(encoder_options(directory))

    def read(self, opened):
        if opened.config.model_type != _STATIC_TYPE:
            return None
        values, path = opened.config.extra, os.path.join(opened.path, "config.json")
        check(values, _STATIC_FILE, path, CheckpointError)
        longest = values.get("max_length", _LONGEST)
        options = {"max_length": None if longest is None else longest + _NUM_ENDS}
        return {**options, "normalize": values.get("normalize", False), "pooling": "mean"}

    def write(self, model, directory, format):
        if _is_static(model) and format == "huggingface":
            rule = "must be 'mean' for static embeddings in this format"
            require(model.pooling == "mean", rule, UserError, pooling=model.pooling)
            if model.tokenizer is not None:
                _write_tokenizer(model, directory)
        _write_modules(model, directory)

    def config_values(self, model):
        if not _is_static(model):
            return {}
        values = {"normalize": model.normalize, "max_length": _most_tokens(model)}
        values["embedding_dtype"] = "float32"
        return {**values, "seq_length": model.backbone.config.max_position_embeddings}

    def variables(self, model):
        mean = [] if model.scalar_mix is None else [model.scalar_mix]
        return [variable for layer in (*mean, *_layers(model)) for variable in layer.variables]


def _is_static(model) -> bool:
    return model.backbone.config.model_type == _STATIC_TYPE


def _most_tokens(model) -> int | None:
    """Returns the number of tokens that are read, without those around a text."""
    return None if model.max_length is None else model.max_length - _NUM_ENDS


def _write_tokenizer(model, directory):
    """Writes the `tokenizer.json` that programs for static embeddings read, with the length."""
    tokenizer, longest = model.tokenizer, _most_tokens(model)
    definition = {**tokenizer.to_huggingface(), "padding": None}
    limit = {"direction": tokenizer.truncation_side.title(), "strategy": "LongestFirst"}
    limit |= {"max_length": longest, "stride": 0}
    definition["truncation"] = None if longest is None else limit
    write_json(os.path.join(directory, TOKENIZER_FILE), definition)


def _layers(model) -> list:
    """Returns the layers on the vectors of a `BertSentenceEncoder`."""
    layers = [] if model.projection_layer is None else [*model.projection_layer.layers]
    return layers if model.whitening is None else [*layers, model.whitening]


def _source(step, folder) -> TensorSource:
    """Opens the weights of a Dense or LayerNorm module.

    Raises:
        CheckpointError: If they are missing, or of another size.
    """
    source = hooks.folder_weights(folder)
    kernel = next(iter(_NAMES[step["type"]].values()))
    if "units" in step and source.shapes.get(kernel, (0,))[0] != step["units"]:
        received = f"shape={source.shapes.get(kernel)}"
        raise tensor_error(source, kernel, f"have {step['units']} rows", received)
    return source


def _load(layer, source):
    for name, variable in zip(_names(layer), layer.weights):
        _assign(variable, source, name)


def _assign(variable, source, name):
    shape = tuple(reversed(variable.shape))
    if source.shapes.get(name) != shape:
        received = f"shape={source.shapes.get(name)}"
        raise tensor_error(source, name, f"have shape {shape}", received)
    variable.assign(np.array(read_floats(source, name)).T)


def _names(layer):
    kind = LAYER_NORM if isinstance(layer, keras.layers.LayerNormalization) else DENSE
    return [_NAMES[kind][variable.name] for variable in layer.weights]


def _write_modules(encoder, directory):
    config = encoder.backbone.config
    modules = [(_STATIC if _is_static(encoder) else "Transformer", "")]
    if encoder.scalar_mix is not None:
        folder = f"1_{_LAYER_MEAN}"
        modules.append((_LAYER_MEAN, folder))
        settings = {"embedding_dimension": config.hidden_size, "layer_start": encoder.layer_start}
        settings["num_hidden_layers"] = config.num_hidden_layers
        module_files.write_modules(settings, os.path.join(directory, folder, "config.json"))
        tensors = {_LAYER_WEIGHTS: encoder.scalar_mix.layer_weights.numpy()}
        write_safetensors(os.path.join(directory, folder, _WEIGHTS_FILE), tensors)
        _return_hidden_states(os.path.join(directory, "config.json"))
    if encoder.pooling == "mean_max":
        pooling = {"embedding_dimension": config.hidden_size, _POOLING_KEY: _MEAN_MAX}
    else:
        pooling = {key: mode == encoder.pooling for key, mode in _POOLING.items()}
        pooling = {"word_embedding_dimension": config.hidden_size, **pooling}
    if not _is_static(encoder):
        modules.append(("Pooling", f"{len(modules)}_Pooling"))
        module_files.write_modules(pooling, os.path.join(directory, modules[-1][1], "config.json"))
    steps = [*(encoder.projection or ())]
    if encoder.whitening is not None:
        steps.append({"type": DENSE, "units": encoder.whitening_size})
    size = encoder.pooled_size
    for step, layer in zip(steps, _layers(encoder)):
        kind = next(kind for kind, ours in _KINDS.items() if ours == step["type"])
        folder = f"{len(modules)}_{kind}"
        modules.append((kind, folder))
        settings = {"dimension": size}
        if "units" in step:
            settings = {"in_features": size, "out_features": step["units"]}
            settings["bias"] = step.get("use_bias", True)
            settings["activation_function"] = _ACTIVATIONS[step.get("activation", "linear")]
            size = step["units"]
            if step.get("use_residual"):
                settings["use_residual"] = True  # releases before 5.7 do not know the key
        module_files.write_modules(settings, os.path.join(directory, folder, "config.json"))
        values = [np.ascontiguousarray(variable.numpy().T) for variable in layer.weights]
        tensors = dict(zip(_names(layer), values))
        write_safetensors(os.path.join(directory, folder, _WEIGHTS_FILE), tensors)
    if encoder.normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    entries = [(_TYPES + kind, path) for kind, path in modules]
    module_files.write_shared(encoder, directory, entries, similarity_fn_name="cosine")


def _return_hidden_states(path):
    """Makes the Transformer module return what `WeightedLayerPooling` reads."""
    if os.path.exists(path):
        write_json(path, read_json(path) | {"output_hidden_states": True}, sort_keys=True)


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


def _step(kind, path):
    """Returns the step of a `VectorProjection` that a module is."""
    if kind == "LayerNorm":
        return {"type": LAYER_NORM}
    values = read_json(path, _DENSE)
    activation = values.get("activation_function") or _ACTIVATIONS["tanh"]  # if it is missing
    ours = next(ours for ours, theirs in _ACTIVATIONS.items() if theirs == activation)
    step = {"type": DENSE, "units": values["out_features"], "activation": ours}
    flags = {"use_bias": ("bias", True), "use_residual": ("use_residual", False)}
    return {**step, **{ours: values.get(*theirs) for ours, theirs in flags.items()}}
