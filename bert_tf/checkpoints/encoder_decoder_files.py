"""Encoder-decoder models in Hugging Face's files.

`config.json` has `"model_type": "encoder-decoder"` and the configurations of two BERTs; the tensors
are named `encoder.…` and `decoder.…`.

Reference: `transformers` modeling_encoder_decoder.py, configuration_encoder_decoder.py.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.config import BertConfig
from bert_tf.errors import ConfigError
from bert_tf.json_files import read_json
from bert_tf.json_schema import OBJECT, integer, list_of, object_of, optional, text

CLASS = "BertEncoderDecoder"
MODEL_TYPE = "encoder-decoder"
ENCODER_PREFIX = "encoder."
_BIAS, _UNTIED_BIAS = "decoder.cls.predictions.bias", "decoder.cls.predictions.decoder.bias"
# Arguments of `BertEncoderDecoder` with the same names in Hugging Face's file.
_TOKEN_IDS = ("decoder_start_token_id", "eos_token_id")
_IS_DECODER = ("is_decoder", "add_cross_attention")
# The key of the decoder's `BertConfig.extra` for what this package does not read, such as the
# settings of a beam search.
_OTHER_KEYS = "encoder_decoder"
_FILE = object_of(
    {
        "encoder": OBJECT,
        "decoder": OBJECT,
        "architectures": optional(list_of(text())),
        **dict.fromkeys(_TOKEN_IDS, optional(integer())),
    }
)


def is_encoder_decoder(path: str) -> bool:
    """Returns whether a file, which need not exist, is an encoder-decoder model's `config.json`."""
    try:
        return read_json(path, OBJECT, ConfigError).get("model_type") == MODEL_TYPE
    except (ConfigError, OSError):
        return False


def read_config(path: str) -> tuple[BertConfig, dict[str, Any], dict[str, Any]]:
    """Reads an encoder-decoder model's `config.json`.

    Returns:
        The configuration of the encoder, arguments of `BertEncoderDecoder`, and the whole file.

    Raises:
        ConfigError: If a value is missing or out of range, or describes another network.
    """
    values = read_json(path, _FILE, ConfigError)
    encoder = BertConfig.from_huggingface(values["encoder"], path, "encoder")
    decoder = dict(values["decoder"])
    for key in _IS_DECODER:
        received = decoder.pop(key, None)
        if received is not True:
            raise ConfigError(f"`decoder.{key}` in {path} must be true. Received: {received!r}")
    decoder = BertConfig.from_huggingface(decoder, path, "decoder")
    others = {key: values[key] for key in values if key not in ("encoder", "decoder", *_TOKEN_IDS)}
    options = {key: values[key] for key in _TOKEN_IDS if values.get(key) is not None}
    is_tied = decoder.extra.get("tie_word_embeddings")
    options["tie_word_embeddings"] = is_tied is None or is_tied
    extra = {**decoder.extra, _OTHER_KEYS: others}
    options["decoder_config"] = dataclasses.replace(decoder, extra=extra)
    return encoder, options, values


def config_of(model) -> dict[str, Any]:
    """Returns the content of `config.json`, without the keys of this package."""
    config = model.decoder.config.to_huggingface()
    others = config.pop(_OTHER_KEYS, {})
    config.update(dict.fromkeys(_IS_DECODER, True), tie_word_embeddings=model.tie_word_embeddings)
    encoder = model.backbone.config.to_huggingface()
    encoder.update(dict.fromkeys(_IS_DECODER, False))
    token_ids = {name: getattr(model, name) for name in _TOKEN_IDS}
    if model.tokenizer is not None:
        token_ids = dict(zip(_TOKEN_IDS, (model.start_token_id, model.end_token_id), strict=True))
    return {
        **others,
        **{name: token_id for name, token_id in token_ids.items() if token_id is not None},
        "pad_token_id": model.decoder.config.pad_token_id,
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        "encoder": encoder,
        "decoder": config,
    }


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `BertEncoderDecoder` that Hugging Face's file cannot hold.

    Among them are the ids of tokens: there, they are always numbers.
    """
    known = ("decoder_config", "tie_word_embeddings")
    return {name: options[name] for name in options if name not in known}


def with_untied_bias(tensors: dict[str, np.ndarray], model) -> dict[str, np.ndarray]:
    """Returns the tensors of a file, with the bias of an output that is not tied.

    `transformers` 5 reads it from the output layer then, and before from both names.
    """
    return tensors if model.tie_word_embeddings else {**tensors, _UNTIED_BIAS: tensors[_BIAS]}


class EncoderDecoderSource:
    """The tensors of an encoder-decoder model, those of the encoder without `encoder.`.

    Args:
        source: The file.
        is_tied: Whether the output shares the decoder's word embeddings. If not, its bias may be
            another tensor than in other files.
    """

    def __init__(self, source: TensorSource, is_tied: bool):
        self.path = source.path
        self.format = source.format
        self._source = source
        self._names = {name.removeprefix(ENCODER_PREFIX): name for name in source.shapes}
        untied = self._names.pop(_UNTIED_BIAS, None)
        if untied is not None and (_BIAS not in self._names or not is_tied):
            self._names[_BIAS] = untied
        self.shapes = {name: source.shapes[there] for name, there in self._names.items()}
        aliases = getattr(source, "aliases", {})
        self.aliases = {name: aliases.get(there, there) for name, there in self._names.items()}

    def read(self, name: str) -> np.ndarray:
        return self._source.read(self._names[name])
