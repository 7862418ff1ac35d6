"""Encoder-decoder models that begin with the weights of two checkpoints.

Reference: Rothe et al. 2019 (arXiv 1907.12461), section 3; `transformers`
modeling_encoder_decoder.py, `from_encoder_decoder_pretrained`, and modeling_bert_generation.py.
"""

import logging
import os
import types
from typing import Any

from bert_tf.checkpoints.assignment import assign_weights, find_weights
from bert_tf.checkpoints.loading import build_model
from bert_tf.checkpoints.opening import Pretrained, open_pretrained
from bert_tf.checkpoints.weight_names import backbone_weights, named_weights
from bert_tf.errors import UserError, require, user_error
from bert_tf.families.network_families import BERT_GENERATION
from bert_tf.models.weight_rows import TABLE, VECTOR, Row
from bert_tf.tasks.encoder_decoder import DECODER
from bert_tf.tasks.masked_lm import HEAD as MASKED_LM_HEAD

_logger = logging.getLogger("bert_tf")

# Layers of a single decoder, with Hugging Face's names. Other formats have no decoders.
_CROSS_ATTENTION_ROWS = tuple(
    row._replace(huggingface=row.huggingface.removeprefix("decoder.bert."), tf1=None)
    for row in DECODER.block_rows
    if row.ours.startswith("cross_attention")
)
_OUTPUT_ROWS = (
    Row(TABLE, "output_embeddings", "cls.predictions.decoder|lm_head.decoder", None, None, None),
)
_GENERATION_HEAD_ROWS = (
    Row(VECTOR, "output_bias", "lm_head.decoder.bias|lm_head.bias", None, None, None),
)


def load_encoder_and_decoder(
    model_class: type,
    encoder_path: str | os.PathLike,
    decoder_path: str | os.PathLike,
    **options: Any,
):
    """Builds a model of two checkpoints. See `BertEncoderDecoder.from_encoder_decoder_pretrained`.

    Raises `CheckpointError` if a checkpoint cannot be read or does not fit its configuration.
    Raises `ConfigError` if a configuration describes a network that is not supported. Raises
    `UserError` if the two do not fit, one is quantized, or an option is unknown or out of range.
    """
    quantization = options.get("quantization")
    rule = "must be left out: a model with new weights is trained first"
    require(quantization is None, rule, UserError, quantization=quantization)
    encoder = _open("encoder_path", encoder_path)
    decoder = _open("decoder_path", decoder_path)
    options.setdefault("decoder_config", decoder.config)
    model = build_model(model_class, encoder, **options)
    backbone = model.backbone
    backbone.pooler.is_missing = True  # the model does not use it
    assign_weights(encoder.source, backbone_weights(backbone))
    weights, new = _decoder_weights(model.decoder, decoder)
    assign_weights(decoder.source, weights)
    model.untrained_heads = new
    path = decoder.source.path
    if new:
        _logger.warning(
            "The decoder has the weights of %s. New are its %s.", path, " and ".join(new)
        )
    return model


def _open(name: str, path) -> Pretrained:
    pretrained = open_pretrained(path, allow_decoder=True)
    if pretrained.quantization is not None:
        received = f"{name}={os.fspath(path)!r}, quantized to {pretrained.quantization}"
        raise user_error(f"`{name}`", "be a checkpoint with floating-point weights", received)
    return pretrained


def _decoder_weights(decoder, pretrained: Pretrained):
    """Returns the weights of the decoder that a checkpoint has, and what it lacks in words."""
    config = decoder.config
    blocks = [block.block for block in decoder.blocks]
    # The blocks of a decoder are BERT's, so it has nothing else that blocks share.
    shared = dict.fromkeys(("distance_bias", "distances", "distance_norm", "final_norm"))
    encoder = types.SimpleNamespace(blocks=blocks, **shared)
    as_bert = types.SimpleNamespace(config=config, embeddings=decoder.embeddings, encoder=encoder)
    weights, new = backbone_weights(as_bert), []
    is_generation = config.model_type == BERT_GENERATION
    head = _GENERATION_HEAD_ROWS if is_generation else MASKED_LM_HEAD.rows
    parts = {
        "cross-attention": [
            weight
            for index, block in enumerate(decoder.blocks)
            for weight in named_weights(_CROSS_ATTENTION_ROWS, block, config, index=index)
        ],
        "output bias" if is_generation else "masked-LM head": named_weights(
            head, decoder.head, config, prefix="decoder.head"
        ),
        "output embeddings": named_weights(_OUTPUT_ROWS, decoder, config),
    }
    for name, part in parts.items():
        if all(find_weights(pretrained.source, part)):
            weights += part
        else:
            new.append(name)
    return weights, tuple(new)
