"""Compares the sizes in a checkpoint's JSON with its weights, before a model is allocated.

This check only limits memory and time. `assignment` compares every shape.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

from bert_tf.base.json_schema import is_integer
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError, require

# With this tolerance a configuration with a few blocks too many still gets the list of missing
# tensors from `assignment`.
_SLACK = 4
_MOST_SHARED_BLOCKS = 1000  # ALBERT-xxlarge has 12
_MIN_BLOCK_TENSORS = 6  # every format has at least 12 tensors per block


def check_claims(
    config: BertConfig, options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: str
) -> None:
    """Refuses a model that is much larger than the weights in its file.

    `options` are the arguments of the model's class in the file, and `shapes` those of the file's
    tensors by name.

    Raises:
        CheckpointError: If the weights cannot be those of such a model.
    """
    decoder = options.get("decoder_config")
    decoder = BertConfig(**decoder) if isinstance(decoder, Mapping) else decoder
    for network in (config, decoder or config):
        number, most = network.num_hidden_layers, len(shapes) // _MIN_BLOCK_TENSORS
        rule = f"must be at most {most}, because {path} holds {len(shapes)} tensors"
        require(network.num_blocks <= most, rule, CheckpointError, num_hidden_layers=number)
        rule = f"must be at most {_MOST_SHARED_BLOCKS} for shared blocks"
        fits = number <= _MOST_SHARED_BLOCKS or not network.shared_blocks
        require(fits, rule, CheckpointError, num_hidden_layers=number)
    available = sum(math.prod(shape) for shape in shapes.values())
    encoder, head = encoder_numbers(config), _head_numbers(config, options)
    if decoder is not None:
        cross_attention = 4 * decoder.num_hidden_layers * decoder.hidden_size**2
        head += encoder_numbers(decoder) + cross_attention
    if encoder + head > _SLACK * available:
        largest = sorted(shapes, key=lambda name: -math.prod(shapes[name]))[:3]
        sizes = ", ".join(f"{name} {list(shapes[name])}" for name in largest)
        raise CheckpointError(
            f"{path} must fit the configuration, which describes {encoder:,} numbers of the "
            f"encoder and {head:,} of the head. Received: {available:,} numbers.\n"
            f"Largest tensors: {sizes}. Configuration: {config.to_dict()!s:.2000}"
        )


@functools.singledispatch
def encoder_numbers(config: BertConfig) -> int:
    """Returns the number of values in the tables and kernels, which are nearly all.

    A subclass of `BertConfig` for another network registers a function of its own.
    """
    hidden = config.hidden_size
    projection = hidden * (config.embedding_size or 0)
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    rows += config.position_offset
    heads = config.num_blocks * config.num_attention_heads
    heads -= sum(len(pruned) for pruned in config.pruned_heads.values())
    wide = config.num_blocks * config.intermediate_size
    kernels = 4 * hidden * heads * config.head_size + 2 * hidden * wide
    return rows * config.embedding_width + projection + kernels


def _head_numbers(config, options):
    """Returns about how many values the head, projection and whitening of the files have."""
    classes = max(
        options.get("num_classes") or 0,
        len(options.get("labels") or ()),
        len(config.extra.get("id2label") or ()),
    )
    width = 2 * config.hidden_size  # two kinds of pooling may be concatenated
    transitions = classes**2 if options.get("use_crf") else 0
    sizes = [options.get(name) or 0 for name in ("whitening_size", "dim")]
    numbers = (classes + sum(sizes)) * width + transitions
    for step in options.get("projection") or ():
        units = step.get("units")
        if is_integer(units):
            numbers, width = numbers + width * units, units
    return numbers
