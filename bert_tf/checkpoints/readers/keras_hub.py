"""Reads keras-hub's BERT: presets (`config.json`, `model.weights.h5`, …) and bare `.weights.h5`.

keras-hub computes every BERT with the tanh GELU, regardless of how the weights were trained, so its
checkpoints are opened with the tanh GELU here. (Only its masked-LM head uses erf and a LayerNorm
epsilon of 1e-5, with which no BERT was trained; here the head uses the network's settings.)

Reference: keras-hub `keras_hub/src/models/bert/`, written by Keras 3 (`saving_lib`).
"""

import itertools
import re

from bert_tf.base.file_errors import file_error
from bert_tf.base.json_schema import FLAG, Kind, check, integer, may_lack, number, object_of, one_of
from bert_tf.base.tensor_source import RenamedSource, TensorSource
from bert_tf.checkpoints.readers.h5_file import H5File
from bert_tf.checkpoints.weight_names import ModelDescription
from bert_tf.config import BertConfig
from bert_tf.errors import ConfigError

KERAS_HUB_ACTIVATION = "gelu_new"  # keras-hub BertBackbone: `gelu_approximate`
_CLASSES = {
    "BertBackbone": None,
    "BertMaskedLM": "BertMaskedLM",
    "BertTextClassifier": "BertTextClassifier",
    "BertClassifier": "BertTextClassifier",  # its name before 2024
    "BertTextEmbedder": "BertSentenceEncoder",
}
_CONFIG_KEYS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "num_segments": "type_vocab_size",
}
_BACKBONE = object_of(
    {
        **{key: integer(least=1) for key in _CONFIG_KEYS},
        "dropout": may_lack(number("in [0, 1)", lambda value: 0 <= value < 1)),
    }
)
_BACKBONE_NAME = Kind(
    "keras-hub's BertBackbone",
    lambda value: isinstance(value, str) and value.rpartition(">")[2] == "BertBackbone",
)
_SAVED_BACKBONE = object_of({"registered_name": _BACKBONE_NAME, "config": _BACKBONE})
_TASK = object_of(
    {
        "config": object_of(
            {
                "backbone": _SAVED_BACKBONE,
                "pooling_mode": may_lack(one_of("mean", "cls", "max")),
                "normalize": may_lack(FLAG),
            }
        )
    }
)
# An argument of BertTextEmbedder -> of BertSentenceEncoder.
_OPTIONS = {"pooling_mode": "pooling", "normalize": "normalize"}
# Some versions of Keras save under the layer's name, others under its class; the table of weight
# names uses the class.
_LAYER_NAMES = {
    "bert_backbone": "backbone",
    "transformer_layer_0": "transformer_encoder",
    "token_embedding": "reversible_embedding",
    "segment_embedding": "embedding",
    "embeddings_layer_norm": "layer_normalization",
    "pooled_dense": "dense",
    "mlm_head": "masked_lm_head",
    "logits": "dense",
}
_MOST_BLOCKS = 1000


def open_keras_hub(
    path: str, part: str | None = None, content: memoryview | None = None
) -> TensorSource:
    """Opens one `.weights.h5` of keras-hub; the errors are those of `H5File`.

    `part` is "backbone" or "task" for the files of a preset; None infers it from the tensors.
    `content` are the file's bytes, if it is a member of an archive; `path` is then for error
    messages.
    """
    file = H5File(path, content)
    names = {_table_name(key): key for key in file.datasets}
    if part is None:
        part = "task" if any(name.startswith("backbone/") for name in names) else "backbone"
    names = {
        name if part == "task" and name.startswith("backbone/") else f"{part}/{name}": key
        for name, key in names.items()
        if "/optimizer/" not in f"/{name}"
    }
    return RenamedSource(file, names, "keras_hub")


def _table_name(name):
    """Converts `layers/bert_backbone/layers/dense/vars/0` to `backbone/dense/vars/0`."""
    steps = name.replace("_layer_checkpoint_dependencies", "layers").split("/")
    steps = [_LAYER_NAMES.get(step, step) for step in steps if step != "layers"]
    steps = [re.sub(r"^transformer_layer_", "transformer_encoder_", step) for step in steps]
    steps = [re.sub(r"layernorm$", "layer_norm", step) for step in steps]
    return "/".join(re.sub(r"^_(query|key|value|output)_dense$", r"\1_dense", s) for s in steps)


def is_keras_hub(values: dict) -> bool:
    """Returns whether a `config.json` is a serialized object of keras-hub or keras-nlp."""
    return str(values.get("registered_name", "")).startswith(("keras_hub>", "keras_nlp>"))


def read_config(values: dict, path: str) -> ModelDescription:
    """Reads a serialized keras-hub object, the content of a JSON file.

    Raises `ConfigError` if the network is not a BERT.
    """
    name = str(values.get("registered_name", "")).rpartition(">")[2]
    if name not in _CLASSES:
        raise ConfigError(
            f"`registered_name` in {path} must be keras-hub's {' or '.join(_CLASSES)}, because "
            "bert_tf implements BERT encoders only. Received: "
            f"registered_name={values.get('registered_name')!r:.200}"
        )
    ours = _CLASSES[name]
    check(values, object_of({"config": _BACKBONE}) if ours is None else _TASK, path, ConfigError)
    backbone = values["config"] if ours is None else values["config"]["backbone"]["config"]
    dropout = backbone.get("dropout", 0.1)
    try:
        config = BertConfig(
            **{argument: backbone[key] for key, argument in _CONFIG_KEYS.items()},
            hidden_act=KERAS_HUB_ACTIVATION,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    task = {} if ours is None else values["config"]
    options = {argument: task[key] for key, argument in _OPTIONS.items() if key in task}
    return ModelDescription(config, ours, options)


def config_from_shapes(source) -> BertConfig:
    """Derives the configuration from the shapes of a file's tensors.

    This works for keras-hub and tensorflow/models, whose query kernels have shape `[H, N, D]`.
    Raises `CheckpointError` if the tensors are not those of a BERT.
    """
    if source.format == "keras_hub":
        names = ("reversible_embedding", "position_embedding", "embedding")
        tables = [f"backbone/{name}/vars/0" for name in names]
        suffixes = ("", *(f"_{index}" for index in range(1, _MOST_BLOCKS)))
        blocks = [f"backbone/transformer_encoder{suffix}/" for suffix in suffixes]
        query = "_self_attention_layer/query_dense/vars/0"
        wide = "_feedforward_intermediate_dense/vars/0"
    else:
        tables = [f"encoder/layer_with_weights-{index}/embeddings" for index in range(3)]
        blocks = [f"encoder/layer_with_weights-{index}/" for index in range(4, _MOST_BLOCKS)]
        query, wide = "_attention_layer/_query_dense/kernel", "_intermediate_dense/kernel"
    found = itertools.takewhile(source.shapes.__contains__, (block + query for block in blocks))
    found = list(found)
    aliases = getattr(source, "aliases", {})
    kernels = {aliases.get(name, name) for name in found}
    if len(kernels) < len(found):
        received = f"{len(kernels)} kernels for {len(found)} blocks"
        raise file_error(source.path, "hold one query kernel per block", received)
    shapes = [source.shapes.get(name, ()) for name in tables]
    queries, widths = (source.shapes.get(blocks[0] + name, ()) for name in (query, wide))
    if any(len(shape) != 2 for shape in (*shapes, widths)) or len(queries) != 3:
        expected = (
            "have a configuration in the same directory, or tensors from whose shapes the sizes of "
            "a BERT follow"
        )
        received = f"{sorted(source.shapes)[:5]}, … Pass `config_file`."
        raise file_error(source.path, expected, received)
    return BertConfig(
        vocab_size=shapes[0][0],
        hidden_size=shapes[0][1],
        num_hidden_layers=len(found),
        num_attention_heads=queries[1],
        intermediate_size=widths[1],
        max_position_embeddings=shapes[1][0],
        type_vocab_size=shapes[2][0],
        hidden_act=KERAS_HUB_ACTIVATION,  # tensorflow/models also uses the tanh form
    )
