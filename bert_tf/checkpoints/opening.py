"""Detects the format of the checkpoint at a path and opens it."""

import dataclasses
import logging
import os

from bert_tf import tasks
from bert_tf.base.file_errors import file_error
from bert_tf.base.files import recover
from bert_tf.base.json_files import parse_json, read_json
from bert_tf.base.json_schema import OBJECT, check, object_of, optional, text
from bert_tf.base.tensor_source import JoinedSource, TensorSource
from bert_tf.checkpoints import hub, own_format, training_checkpoint
from bert_tf.checkpoints.adapters import AdaptedSource, without_adapters
from bert_tf.checkpoints.assignment import check_claims
from bert_tf.checkpoints.family_names import bert_class, by_bert_names
from bert_tf.checkpoints.huggingface_files import open_weights, weights_file
from bert_tf.checkpoints.readers import keras_archive, keras_hub
from bert_tf.checkpoints.readers.h5_file import H5File
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource
from bert_tf.checkpoints.readers.stored_zip import StoredZip
from bert_tf.checkpoints.readers.tensor_bundle import (
    OBJECT_GRAPH_KEY,
    SAVED_VARIABLES,
    Tf1Source,
    checkpoint_prefix,
)
from bert_tf.checkpoints.readers.tf_models_source import TfModelsSource
from bert_tf.checkpoints.static_embeddings import MODEL_TYPE, MODULE, read_static
from bert_tf.checkpoints.weight_names import BACKBONE, BACKBONE_OPTIONS, OWN, ModelDescription
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError, ConfigError, UserError, require
from bert_tf.families.network_families import BERTS
from bert_tf.models.task_files import NetworksFiles, OpenedDirectory
from bert_tf.tasks.shared import module_files
from bert_tf.text.loading import find_tokenizer
from bert_tf.text.tokenizer_files import find as find_file

_logger = logging.getLogger("bert_tf")

# The key of config.json for what Hugging Face has no key for.
OWN_KEY = "bert_tf"
_CLASS_AND_OPTIONS = object_of({"class": optional(text()), "options": optional(BACKBONE_OPTIONS)})
TRAINED_MODEL = "model"  # the folder of the trained model in a tool's --output_dir
_CONFIG_FILES = ("config.json", "bert_config.json")
_HUGGINGFACE_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", "tf_model.h5", ".index.json")
_ASSETS = "assets"
_EXPECTED = (
    "be a checkpoint: a directory with model.safetensors, pytorch_model.bin, tf_model.h5, "
    "bert_model.ckpt.index, model.weights.h5 or bert_tf.json; one such file; a training checkpoint "
    "ckpt-<step>; a .keras file; a SavedModel of a BERT of TF Hub; or a name on the Hugging "
    "Face Hub, org/name"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretrained(ModelDescription):
    """An opened checkpoint.

    Attributes:
        directory: The directory of its files.
        source: Its tensors.
        architectures: Hugging Face's names of the model's class, if the file has any.
        adapters: What adds the adapters of a task to the tensors, if the file has any.
    """

    directory: str
    source: TensorSource
    architectures: tuple[str, ...] = ()
    adapters: AdaptedSource | None = None


def open_pretrained(
    path: str | os.PathLike,
    config_file: str | None = None,
    allow_decoder: bool = False,
    adapter: str | None = None,
) -> Pretrained:
    """Opens a checkpoint of any format: a directory, file, TensorFlow's prefix or `org/name`.

    `config_file` replaces the checkpoint's configuration of the network. Other settings of a
    trained model (labels, problem type, pooling) are still read from the checkpoint.
    `allow_decoder` also opens a single decoder of Hugging Face. `adapter` is the task whose
    adapters are added to the weights. Raises `CheckpointError` if `path` is not a checkpoint, a
    file is missing or damaged, or an interrupted save cannot be undone, `ConfigError` if the
    configuration describes a network that is not supported, and `UserError` if the checkpoint has
    no such adapter.
    """
    path = resolve(path)
    directory = path if os.path.isdir(path) else os.path.dirname(path) or "."
    recover(directory)
    if os.path.isdir(path):  # `recover` may have moved it back
        pretrained = _open_directory(path, config_file, allow_decoder)
    else:
        pretrained = _open_file(directory, path, config_file, allow_decoder)
    if adapter is not None:
        rule = "must be None: the checkpoint has no adapters"
        require(pretrained.adapters is not None, rule, UserError, adapter=adapter)
        pretrained.adapters.choose(adapter)
    source = pretrained.source
    # Each tensor once, even if it has several names.
    aliases = getattr(source, "aliases", {})
    shapes = {aliases.get(name, name): shape for name, shape in source.shapes.items()}
    check_claims(pretrained.config, pretrained.options, shapes, source.path)
    return pretrained


def resolve(path: str | os.PathLike) -> str:
    """Returns the local path of a checkpoint, `path` itself or `org/name`.

    For the output directory of a tool, it is the trained model in that directory or, if there is
    none yet, its newest training checkpoint. Raises `CheckpointError` if it cannot be downloaded,
    or an interrupted save cannot be undone.
    """
    path = os.fspath(path)
    if hub.is_hub_name(path):
        return hub.fetch(path)
    if not os.path.isdir(path):
        return path
    trained = os.path.join(path, TRAINED_MODEL)
    for directory in (path, trained, os.path.join(path, training_checkpoint.DIRECTORY)):
        recover(directory)  # an interrupted save may have moved the files
    found = next(filter(format_of, (path, trained)), None)
    return found or training_checkpoint.find_training_checkpoint(path) or path


def tokenizer_directory(path: str | os.PathLike) -> str:
    """Returns the local directory of the tokenizer of a checkpoint, as `resolve` finds it.

    It is the folder of the Transformer, if `modules.json` names one. Raises `CheckpointError` if
    there is no such file or directory, it cannot be downloaded, an interrupted save cannot be
    undone, or `modules.json` is damaged.
    """
    path = os.fspath(path)
    if hub.is_hub_name(path):
        path = hub.fetch(path, weights=False)
    recover(path if os.path.isdir(path) else os.path.dirname(path) or ".")
    if os.path.isdir(path):
        path = path if find_tokenizer(path) else resolve(path)
        if find_tokenizer(path) is None and format_of(path) == "tf1":
            return _assets(path)
        return module_files.transformer_folder(path)
    if not (os.path.exists(path) or checkpoint_prefix(path)):
        rule = "must exist or be a name on the Hugging Face Hub, org/name"
        require(False, rule, CheckpointError, path=path)
    return os.path.dirname(path) or "."


def format_of(directory: str) -> str | None:
    """Returns the format that `open_pretrained(directory)` would read, or None."""
    if not os.path.isdir(directory):
        return None
    if os.path.exists(os.path.join(directory, own_format.CONFIG_FILE)):
        return OWN
    if os.path.exists(os.path.join(directory, "model.weights.h5")):
        return "keras_hub"
    if weights_file(directory) or weights_file(module_files.transformer_folder(directory)):
        return "huggingface"
    return "tf1" if checkpoint_prefix(directory) else None


def _open_directory(path, config_file, allow_decoder=False):
    format = format_of(path)
    if format == OWN:
        source = SafetensorsSource(os.path.join(path, own_format.WEIGHTS_FILE), OWN)
        return _pretrained(path, source, own_format.read_own(path), config_file)
    if format == "keras_hub":
        return _open_preset(path, config_file)
    if format == "huggingface":
        folder = module_files.transformer_folder(path)
        weights = weights_file(folder)
        if weights is None:
            expected = f"hold the weights of the Transformer in {module_files.MODULES_FILE}"
            raise file_error(folder, expected, "no such file")
        return _open_huggingface(folder, weights, config_file, allow_decoder, modules=path)
    if format == "tf1":
        return _open_tensorflow(_assets(path), checkpoint_prefix(path), config_file)
    if training_checkpoint.find_training_checkpoint(path) == path:
        model, source = training_checkpoint.load_training_checkpoint(path)
        return _pretrained(path, source, model, config_file)
    raise file_error(path, _EXPECTED, f"a directory with {sorted(os.listdir(path))[:20]}")


def _assets(directory):
    """Returns the directory of the vocabulary: in a SavedModel of TF Hub one of its own."""
    assets = os.path.join(directory, _ASSETS)
    is_saved_model = os.path.exists(os.path.join(directory, SAVED_VARIABLES))
    return assets if is_saved_model and os.path.isdir(assets) else directory


def _open_file(directory, path, config_file, allow_decoder):
    if os.path.isfile(path):
        if os.path.basename(path) in (own_format.CONFIG_FILE, own_format.WEIGHTS_FILE):
            return _open_directory(directory, config_file)
        if path.endswith(".keras"):
            return _open_archive(directory, path, config_file)
        if path.endswith(".weights.h5"):
            return _open_keras_weights(directory, path, config_file)
        if path.endswith(_HUGGINGFACE_SUFFIXES):
            return _open_huggingface(directory, path, config_file, allow_decoder)
    prefix = checkpoint_prefix(path)
    if prefix is not None and not os.path.isdir(prefix):
        return _open_tensorflow(directory, prefix, config_file)
    received = "a file of another kind" if os.path.exists(path) else "no such file or directory"
    raise file_error(path, _EXPECTED, received)


def _open_huggingface(directory, path, config_file, allow_decoder, modules=None):
    modules = modules or directory  # the directory of modules.json
    file = os.path.join(directory, "config.json")
    spec = _spec_of_networks(file)
    if spec is not None:
        return _open_networks(directory, path, file, config_file, spec)
    listed = module_files.read_modules(modules)
    is_static = any(kind == MODULE for kind, _ in listed) and not os.path.exists(file)
    config = None if is_static else _config(directory, config_file, allow_decoder=allow_decoder)
    if is_static or config.model_type == MODEL_TYPE:
        source, config, tokenizer = read_static(open_weights(path), config, directory)
        model = _described(OpenedDirectory(modules, listed, config, source=source))
        return dataclasses.replace(_pretrained(directory, source, model), tokenizer=tokenizer)
    source, config, adapters = without_adapters(open_weights(path), config, file)
    model_type = config.model_type
    names = config.extra.get("architectures") or ()
    architectures = tuple(bert_class(name, model_type) for name in names)
    if model_type not in BERTS:
        source = by_bert_names(source, config, names[0] if names else "Model")
    opened = OpenedDirectory(modules, listed, config, architectures, source)
    model = _described(opened)
    opened = _pretrained(directory, opened.source, model, architectures=architectures)
    return dataclasses.replace(opened, adapters=adapters)


def _spec_of_networks(file):
    """Returns the spec of the task with this kind of `config.json`, a file that need not exist."""
    try:
        model_type = read_json(file, OBJECT, ConfigError).get("model_type")
    except (ConfigError, OSError):
        return None
    networks = [spec for spec in tasks.specs() if isinstance(spec.task_files(), NetworksFiles)]
    return next((spec for spec in networks if spec.task_files().model_type == model_type), None)


def _open_networks(directory, path, file, config_file, spec):
    files = spec.task_files()
    config, options, values = files.read_config(file)
    own = values.get(OWN_KEY) or {}
    check(own, _CLASS_AND_OPTIONS, file, ConfigError, OWN_KEY)
    options.update(own.get("options") or {})
    source = files.by_our_names(open_weights(path), options)
    names = tuple(values.get("architectures") or ())
    model = ModelDescription(config, spec.model, options)
    return _pretrained(directory, source, model, config_file, architectures=names)


def _open_tensorflow(directory, prefix, config_file):
    source = Tf1Source(prefix)
    names = _CONFIG_FILES[::-1]
    if OBJECT_GRAPH_KEY not in source.shapes:
        config = _config(directory, config_file, names)
        opened = OpenedDirectory(directory, [], config, source=source)
        return _pretrained(directory, source, _described(opened))
    source = TfModelsSource(prefix)
    if config_file is None and find_file(directory, names) is None:
        config = keras_hub.config_from_shapes(source)
    else:
        config = _config(directory, config_file, names)
    return _pretrained(directory, source, ModelDescription(config))


def _open_preset(directory, network_file):
    weights = os.path.join(directory, "model.weights.h5")
    config_file = find_file(directory, ["config.json"])
    values = read_json(config_file, OBJECT) if config_file else {}
    if not keras_hub.is_keras_hub(values):
        return _open_keras_weights(directory, weights, network_file)
    model = keras_hub.read_config(values, config_file)
    source = keras_hub.open_keras_hub(weights, "backbone")
    task_file = os.path.join(directory, "task.json")
    if os.path.exists(task_file):
        task = keras_hub.read_config(read_json(task_file, OBJECT), task_file)
        model = dataclasses.replace(task, config=model.config)
    task_weights = os.path.join(directory, "task.weights.h5")  # none for a task without a head
    if os.path.exists(task_file) and os.path.exists(task_weights):
        task = keras_hub.open_keras_hub(task_weights, "task")
        source = JoinedSource(directory, [source, task])
    return _pretrained(directory, source, model, network_file)


def _open_archive(directory, path, config_file):
    archive = StoredZip(path)
    values = parse_json(archive.view("config.json"), f"{path}, config.json", OBJECT)
    weights = archive.view(keras_archive.WEIGHTS)  # verifies the checksum
    if keras_hub.is_keras_hub(values):
        source = keras_hub.open_keras_hub(path, content=weights)
        return _pretrained(directory, source, keras_hub.read_config(values, path), config_file)
    model = _with_network(keras_archive.read_object(values, path), config_file)
    check_claims(model.config, model.options, H5File(path, weights).shapes, path)
    return _pretrained(directory, keras_archive.load_archive(path, model), model)


def _open_keras_weights(directory, path, config_file):
    shapes = H5File(path).shapes
    if any("transformer_encoder" in name or "transformer_layer" in name for name in shapes):
        source = keras_hub.open_keras_hub(path)
        for file in (config_file, find_file(directory, ["config.json"])):
            values = read_json(file, OBJECT) if file else {}
            if keras_hub.is_keras_hub(values):
                network = config_file if file != config_file else None
                return _pretrained(directory, source, keras_hub.read_config(values, file), network)
        if config_file:
            config = BertConfig.from_json_file(config_file)
        else:
            config = keras_hub.config_from_shapes(source)
        return _pretrained(directory, source, ModelDescription(config))
    model = _described(OpenedDirectory(directory, [], _config(directory, config_file)))
    model = dataclasses.replace(model, class_name=model.class_name or BACKBONE)
    check_claims(model.config, model.options, shapes, path)
    return _pretrained(directory, keras_archive.load_archive(path, model), model)


def _pretrained(directory, source, model, config_file=None, **others):
    """Returns the checkpoint with this `ModelDescription`; `config_file` has another network."""
    fields = vars(_with_network(model, config_file))
    return Pretrained(directory=directory, source=source, **fields, **others)


def _described(opened):
    """Returns the `ModelDescription` of a directory: class and arguments, if the files say them."""
    own = opened.config.extra.get(OWN_KEY) or {}
    name, options = own.get("class"), {} if own.get("class") is None else own.get("options") or {}
    for spec in tasks.specs():
        # The files of other tasks are older than the named class.
        found = spec.task_files().read(opened) if name in (None, spec.model) else None
        if found is not None:
            return ModelDescription(opened.config, spec.model, {**options, **found})
    return ModelDescription(opened.config, name, dict(options))


def _config(directory, config_file, names=_CONFIG_FILES, allow_decoder=False):
    path = find_file(directory, names)
    if path is not None:
        try:
            config = _read_config(path, allow_decoder)
            return BertConfig.from_json_file(config_file, config) if config_file else config
        except ConfigError as error:
            if config_file is None:
                raise
            _logger.warning("%s The labels and settings of a head are therefore unknown.", error)
    if config_file is None:
        advice = "If the configuration is elsewhere, pass `config_file`."
        received = f"{sorted(os.listdir(directory))[:20]}. {advice}"
        raise file_error(directory, f"hold {' or '.join(names)}", received)
    return _read_config(config_file)


def _read_config(path, allow_decoder=False):
    config = BertConfig.from_json_file(path, allow_decoder=allow_decoder)
    check(config.extra.get(OWN_KEY) or {}, _CLASS_AND_OPTIONS, path, ConfigError, OWN_KEY)
    return config


def _with_network(model, config_file):
    """Returns a `ModelDescription` with the network that another file, if any, describes."""
    if config_file is None:
        return model
    return dataclasses.replace(model, config=BertConfig.from_json_file(config_file, model.config))
