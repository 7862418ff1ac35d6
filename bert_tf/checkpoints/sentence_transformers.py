"""What a sentence-transformers directory says beside its BERT: pooling, a linear map,
normalization, length.

Reference: sentence-transformers, `modules.json`, `1_Pooling/config.json`, `2_Dense/` and
`sentence_bert_config.json` of its saved models.
"""

import json
import os

import numpy as np

from bert_tf.checkpoints.assignment import read_floats
from bert_tf.checkpoints.huggingface_files import open_weights, weights_file
from bert_tf.checkpoints.loading import load_task_model
from bert_tf.checkpoints.opening import resolve
from bert_tf.checkpoints.readers.safetensors_source import write_safetensors
from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.errors import CheckpointError
from bert_tf.json_files import read_json
from bert_tf.json_schema import (
    FLAG,
    Kind,
    either,
    integer,
    is_file_name,
    list_of,
    may_lack,
    object_of,
    optional,
    text,
)

_MODULES_FILE = "modules.json"
_LENGTH_FILE = "sentence_bert_config.json"
_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}
# Since version 5.7 one key names the mode, or several in the order in which they are concatenated.
_POOLING_KEY = "pooling_mode"
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
    {_POOLING_KEY: may_lack(_MODE), **{key: may_lack(FLAG) for key in _POOLING}}
)
_DENSE = object_of(
    {
        "activation_function": may_lack(text()),
        "bias": may_lack(FLAG),
        "out_features": integer(least=1),
    }
)
_LENGTHS = object_of({"max_seq_length": optional(integer())})


def load_sentence_encoder(encoder_class: type, path: str | os.PathLike, **options):
    """Builds the encoder of a checkpoint directory. See `BertSentenceEncoder.from_pretrained`."""
    path = resolve(path)
    options = {**encoder_options(path), **options}
    if options.get("whitening_size") is not None:
        whitening_source(path, options["whitening_size"])  # before memory is taken for it
    encoder = load_task_model(encoder_class, path, **options)
    if encoder.whitening is not None:
        load_whitening(encoder.whitening, path)
    return encoder


def encoder_options(directory: str | os.PathLike) -> dict:
    """The arguments of `BertSentenceEncoder` that the directory asks for.

    Args:
        directory: A checkpoint directory; without a `modules.json` it asks for nothing.

    Returns:
        `pooling`, `normalize` and, where the files say so, `whitening_size` and `max_length`.

    Raises:
        CheckpointError: If a module is none of Transformer, Pooling, Dense without an activation
            and Normalize, in this order, or the pooling is one that `BertSentenceEncoder` does not
            have.
    """
    directory = os.fspath(directory)
    path = os.path.join(directory, _MODULES_FILE)
    if not os.path.exists(path):
        return {}
    options = {"normalize": False}
    for kind, module_path in _modules(directory):
        if kind == "Pooling":
            options["pooling"] = _pooling(os.path.join(module_path, "config.json"))
        elif kind == "Dense" and not options["normalize"] and "whitening_size" not in options:
            options["whitening_size"] = _linear_size(os.path.join(module_path, "config.json"))
        elif kind == "Normalize":
            options["normalize"] = True
        elif kind != "Transformer":
            raise CheckpointError(
                f"{path}: modules of the types Transformer, Pooling, at most one Dense, and "
                f"Normalize were expected, in this order. Received: type={kind!r}"
            )
    limits = os.path.join(directory, _LENGTH_FILE)
    if os.path.exists(limits):
        longest = read_json(limits, _LENGTHS).get("max_seq_length")
        options.update({"max_length": longest} if longest else {})
    return options


def whitening_source(directory: str | os.PathLike, size: int) -> TensorSource:
    """The weights of the Dense module of a directory, which are vectors of `size` numbers.

    Raises:
        CheckpointError: If the directory has none, or they are of another size.
    """
    directory = os.fspath(directory)
    has_modules = os.path.exists(os.path.join(directory, _MODULES_FILE))
    paths = [path for kind, path in _modules(directory) if kind == "Dense"] if has_modules else []
    file = weights_file(paths[0]) if paths else None
    if file is None:
        raise CheckpointError(
            f"{directory}: the weights of a Dense module were expected, for whitened vectors of "
            f"size {size}. Received: none. Pass whitening_size=None, and fit it anew."
        )
    source = open_weights(file)
    if source.shapes.get(_BIAS) != (size,):
        raise CheckpointError(
            f"{file}: {_BIAS} of shape [{size}] was expected. Received: {source.shapes.get(_BIAS)}"
        )
    return source


def load_whitening(layer, directory: str | os.PathLike) -> None:
    """Fills a `Whitening` layer from the Dense module of a directory.

    Raises:
        CheckpointError: If the directory has none, or it is of another shape.
    """
    source = whitening_source(directory, layer.units)
    values = {}
    for name, variable in ((_KERNEL, layer.kernel), (_BIAS, layer.bias)):
        shape = tuple(reversed(variable.shape))
        if source.shapes.get(name) != shape:
            raise CheckpointError(
                f"{source.path}: {name} of shape {list(shape)} was expected. "
                f"Received: {source.shapes.get(name)}"
            )
        values[name] = np.array(read_floats(source, name))
    layer.kernel.assign(values[_KERNEL].T)
    layer.bias.assign(values[_BIAS])


def module_variables(model) -> list:
    """The variables that `write_modules` writes: they stand in no format's table of names."""
    whitening = getattr(model, "whitening", None)
    return [] if whitening is None else whitening.variables


def write_modules(encoder, directory: str) -> None:
    """Writes what sentence-transformers opens an encoder by, beside the encoder's own files."""
    config = encoder.backbone.config
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    pooling = {"word_embedding_dimension": config.hidden_size}
    if encoder.pooling == "mean_max":
        pooling = {"embedding_dimension": config.hidden_size, _POOLING_KEY: _MEAN_MAX}
    else:
        pooling.update({key: mode == encoder.pooling for key, mode in _POOLING.items()})
    _write(pooling, os.path.join(directory, "1_Pooling", "config.json"))
    if encoder.whitening is not None:
        modules.append(("Dense", "2_Dense"))
        kernel, bias = encoder.whitening.kernel.numpy(), encoder.whitening.bias.numpy()
        dense = {
            "in_features": kernel.shape[0],
            "out_features": kernel.shape[1],
            "bias": True,
            "activation_function": _IDENTITY,
        }
        _write(dense, os.path.join(directory, "2_Dense", "config.json"))
        write_safetensors(
            os.path.join(directory, "2_Dense", "model.safetensors"),
            {_KERNEL: np.ascontiguousarray(kernel.T), _BIAS: bias},
        )
    if encoder.normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": _TYPES + kind}
        for index, (kind, path) in enumerate(modules)
    ]
    _write(entries, os.path.join(directory, _MODULES_FILE))
    # Whether text is lowered the tokenizer's files say.
    limits = {"max_seq_length": encoder.max_length, "do_lower_case": False}
    _write(limits, os.path.join(directory, _LENGTH_FILE))


def _modules(directory):
    """Pairs of a module's kind and its directory."""
    path = os.path.join(directory, _MODULES_FILE)
    return [
        (module["type"].rsplit(".", 1)[-1], os.path.join(directory, module["path"]))
        for module in read_json(path, _MODULES)
    ]


def _pooling(path):
    values = read_json(path, _POOLING_FILE)
    if _POOLING_KEY in values:
        modes = values[_POOLING_KEY]
        if modes == _MEAN_MAX:
            return "mean_max"
        modes = modes if isinstance(modes, list) else [modes]
        if len(modes) != 1 or modes[0] not in _POOLING.values():
            raise CheckpointError(
                f"{path}: `{_POOLING_KEY}` must be cls, mean, max or {_MEAN_MAX}. Received: {modes}"
            )
        return modes[0]
    wanted = [
        name for name, value in values.items() if name.startswith("pooling_mode_") and value is True
    ]
    modes = [_POOLING.get(name) for name in wanted]
    if len(modes) != 1 or modes[0] is None:
        raise CheckpointError(
            f"{path}: exactly one of {sorted(_POOLING)} was expected. Received: {wanted}"
        )
    return modes[0]


def _linear_size(path):
    values = read_json(path, _DENSE)
    # Without the key the module has a tanh.
    if values.get("activation_function") != _IDENTITY or values.get("bias") is False:
        raise CheckpointError(
            f"{path}: a Dense module with a bias and the activation {_IDENTITY} was expected. "
            f"Received: activation_function={values.get('activation_function')!r:.200}, "
            f"bias={values.get('bias')!r}"
        )
    return values["out_features"]


def _write(values, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, indent=2)
        file.write("\n")
