"""Encoder-decoder models in Hugging Face's files.

`config.json` has `"model_type": "encoder-decoder"` and the configurations of two networks, each of
BERT or of BERT-generation; the tensors are named `encoder.…` and `decoder.…`.

Reference: `transformers` modeling_encoder_decoder.py, configuration_encoder_decoder.py,
modeling_bert_generation.py.
"""

import dataclasses
import os

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import OBJECT, either, integer, list_of, object_of, optional, text
from bert_tf.base.tensor_source import RenamedSource
from bert_tf.config import BertConfig
from bert_tf.errors import ConfigError, user_error
from bert_tf.families.file_values import DECODER_KEYS
from bert_tf.families.network_families import BERT_GENERATION, BERTS
from bert_tf.models.task_files import NetworksFiles

_ENCODER_PREFIX = "encoder."
_HEAD = "decoder.cls.predictions."
_GENERATION_HEAD = "decoder.lm_head."  # the same tensors in a decoder of BERT-generation
_BIAS, _UNTIED_BIAS = f"{_HEAD}bias", f"{_HEAD}decoder.bias"
# Arguments of `BertEncoderDecoder` with the same names in Hugging Face's file.
_TOKEN_IDS = ("decoder_start_token_id", "eos_token_id")
# The decoder's configuration may replace them, as in the `generate` of transformers.
_TOKEN_IDS_OF_DECODER = ("bos_token_id", "eos_token_id")
# In transformers, this file is read instead of `config.json` where it exists.
_GENERATION_FILE = "generation_config.json"
EOS_TOKEN_ID = optional(either(integer(), list_of(integer(), least=1)))
_KINDS = dict(zip(_TOKEN_IDS, (optional(integer()), EOS_TOKEN_ID), strict=True))
# The key of the decoder's `BertConfig.extra` for what this package does not read, such as the
# settings of a beam search.
_OTHER_KEYS = "encoder_decoder"
_FILE = object_of(
    {
        "encoder": OBJECT,
        "decoder": object_of(
            dict(zip(_TOKEN_IDS_OF_DECODER, (optional(integer()), EOS_TOKEN_ID), strict=True))
        ),
        "architectures": optional(list_of(text())),
        **_KINDS,
    }
)


class EncoderDecoderFiles(NetworksFiles):
    """`config.json` with two configurations, and tensors of an encoder and a decoder."""

    names = (_GENERATION_FILE,)
    model_type = "encoder-decoder"
    backbone_prefix = _ENCODER_PREFIX

    def read_config(self, path):
        values = read_json(path, _FILE, ConfigError)
        for part in ("encoder", "decoder"):
            name = values[part].get("model_type")
            if name not in (None, *BERTS):
                expected = f"be {' or '.join(map(repr, BERTS))}"
                received = f"model_type={name!r}"
                raise user_error(f"{path}, {part}: `model_type`", expected, received, ConfigError)
        encoder = BertConfig.from_huggingface(values["encoder"], path, "encoder")
        decoder = dict(values["decoder"])
        for key in DECODER_KEYS:
            received = decoder.pop(key, None)
            if received is not True:
                raise ConfigError(f"`decoder.{key}` in {path} must be true. Received: {received!r}")
        decoder = BertConfig.from_huggingface(decoder, path, "decoder")
        others = {
            key: values[key] for key in values if key not in ("encoder", "decoder", *_TOKEN_IDS)
        }
        generation = os.path.join(os.path.dirname(path), _GENERATION_FILE)
        if os.path.exists(generation):
            generation = read_json(generation, object_of(_KINDS), ConfigError)
        else:
            generation = {}
        options = {}
        for key, replacement in zip(_TOKEN_IDS, _TOKEN_IDS_OF_DECODER, strict=True):
            found = (generation.get(key), values.get(key), decoder.extra.get(replacement))
            options[key] = next((value for value in found if value is not None), None)
        is_tied = decoder.extra.get("tie_word_embeddings")
        options["tie_word_embeddings"] = is_tied is None or is_tied
        extra = {**decoder.extra, _OTHER_KEYS: others}
        options["decoder_config"] = dataclasses.replace(decoder, extra=extra)
        return encoder, options, values

    def by_our_names(self, source, options):
        decoder_type, is_tied = options["decoder_config"].model_type, options["tie_word_embeddings"]
        head = _GENERATION_HEAD if decoder_type == BERT_GENERATION else _HEAD
        names = {
            _replaced(name, head, _HEAD).removeprefix(_ENCODER_PREFIX): name
            for name in source.shapes
        }
        untied = names.pop(_UNTIED_BIAS, None)
        if untied is not None and (_BIAS not in names or not is_tied):
            names[_BIAS] = untied

        def in_file(name):
            is_encoder = not name.startswith("decoder.")
            return _ENCODER_PREFIX + name if is_encoder else _replaced(name, _HEAD, head)

        return RenamedSource(source, names, in_file=in_file)

    def config_of(self, model):
        config = model.decoder.config.to_huggingface()
        others = config.pop(_OTHER_KEYS, {})
        config.update(
            dict.fromkeys(DECODER_KEYS, True), tie_word_embeddings=model.tie_word_embeddings
        )
        encoder = model.backbone.config.to_huggingface()
        encoder.update(dict.fromkeys(DECODER_KEYS, False))
        token_ids = {name: getattr(model, name) for name in _TOKEN_IDS}
        if model.tokenizer is not None:
            defaults = (model.start_token_id, model.end_token_id)
            for name, default in zip(_TOKEN_IDS, defaults, strict=True):
                token_ids[name] = default if token_ids[name] is None else token_ids[name]
        return {
            **others,
            **{name: token_id for name, token_id in token_ids.items() if token_id is not None},
            "pad_token_id": model.decoder.config.pad_token_id,
            "model_type": self.model_type,
            "is_encoder_decoder": True,
            "encoder": encoder,
            "decoder": config,
        }

    def own_options(self, options):
        # The ids of tokens are always numbers in Hugging Face's file, so they are here too.
        known = ("decoder_config", "tie_word_embeddings")
        return {name: options[name] for name in options if name not in known}

    def by_their_names(self, tensors, model):
        # `transformers` 5 reads the bias of an output that is not tied from the output layer, and
        # before from both names.
        if not model.tie_word_embeddings:
            tensors = {**tensors, _UNTIED_BIAS: tensors[_BIAS]}
        if model.decoder.config.model_type == BERT_GENERATION:
            return {_replaced(name, _HEAD, _GENERATION_HEAD): tensors[name] for name in tensors}
        return tensors


def _replaced(name, prefix, other):
    """Returns a name with another prefix, if it begins with `prefix`."""
    return other + name.removeprefix(prefix) if name.startswith(prefix) else name
