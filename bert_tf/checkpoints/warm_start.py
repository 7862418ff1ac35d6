"""Encoder-decoder models that begin with the weights of two BERT checkpoints.

Reference: Rothe et al. 2019 (arXiv 1907.12461), section 3; `transformers`
modeling_encoder_decoder.py, `from_encoder_decoder_pretrained`.
"""

import logging
import os
import types
from typing import Any

from bert_tf.checkpoints.assignment import assign_weights, find_weights
from bert_tf.checkpoints.loading import build_model
from bert_tf.checkpoints.opening import Pretrained, open_pretrained
from bert_tf.checkpoints.weight_names import backbone_weights, row_weights
from bert_tf.errors import UserError
from bert_tf.tasks.masked_lm import HEAD as MASKED_LM_HEAD

_logger = logging.getLogger("bert_tf")


def load_encoder_and_decoder(
    model_class: type,
    encoder_path: str | os.PathLike,
    decoder_path: str | os.PathLike,
    **options: Any,
):
    """Builds a model of two checkpoints. See `BertEncoderDecoder.from_encoder_decoder_pretrained`.

    Raises:
        CheckpointError: If a checkpoint cannot be read or does not fit its configuration.
        ConfigError: If a configuration describes a network that is not supported.
        UserError: If the two do not fit, one is quantized, or an option is unknown or out of range.
    """
    if "quantization" in options:
        raise UserError(
            "`quantization` must be left out: a model with new weights is trained first. Received: "
            f"quantization={options['quantization']!r}"
        )
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
    _logger.warning(
        "The decoder has the weights of %s. New are its %s.", decoder.source.path, " and ".join(new)
    )
    return model


def _open(name: str, path) -> Pretrained:
    pretrained = open_pretrained(path)
    if pretrained.quantization is not None:
        raise UserError(
            f"`{name}` must be a checkpoint with floating-point weights. Received: "
            f"{name}={os.fspath(path)!r}, quantized to {pretrained.quantization}"
        )
    return pretrained


def _decoder_weights(decoder, pretrained: Pretrained):
    """Returns the weights of the decoder that a BERT has, and what it lacks in words."""
    source, config = pretrained.source, decoder.config
    encoder = types.SimpleNamespace(blocks=[block.block for block in decoder.blocks])
    as_bert = types.SimpleNamespace(config=config, embeddings=decoder.embeddings, encoder=encoder)
    weights, new = backbone_weights(as_bert), ["cross-attention"]
    head = row_weights(MASKED_LM_HEAD.rows, decoder.head, config, prefix="decoder.head")
    if all(find_weights(source, head)):
        weights += head
    else:
        new.append("masked-LM head")
    if decoder.output_embeddings is not None:
        new.append("output embeddings")
    return weights, tuple(new)
