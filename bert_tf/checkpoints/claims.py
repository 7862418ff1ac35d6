"""What a checkpoint's JSON claims, compared with its weights before memory is taken for a model.

This bounds memory and time, no more: `assignment` compares every shape and says what differs.
"""

import math
from collections.abc import Mapping
from typing import Any

from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.config import BertConfig
from bert_tf.errors import CheckpointError

# A configuration that is wrong by a few blocks gets as far as the list of its missing tensors.
_SLACK = 4
_FEWEST_TENSORS = 6  # of a block; the format with the fewest has 12


def distinct_shapes(source: TensorSource) -> dict[str, tuple[int, ...]]:
    """The shapes of a file's tensors, each once: some formats know one under several names."""
    aliases = getattr(source, "aliases", {})
    return {aliases.get(name, name): shape for name, shape in source.shapes.items()}


def check_claims(
    config: BertConfig, options: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], path: str
) -> None:
    """Refuses a model that is far larger than the weights that are there for it.

    Args:
        config: The configuration.
        options: The arguments of the model's class, as the file has them.
        shapes: The shapes of the file's tensors, by name.
        path: The weights, for the message.

    Raises:
        CheckpointError: If the weights cannot be those of such a model.
    """
    if config.num_hidden_layers * _FEWEST_TENSORS > len(shapes):
        raise CheckpointError(
            f"`num_hidden_layers` must be at most {len(shapes) // _FEWEST_TENSORS}: {path} holds "
            f"{len(shapes)} tensors. Received: num_hidden_layers={config.num_hidden_layers}"
        )
    available = sum(math.prod(shape) for shape in shapes.values())
    encoder, head = _encoder_numbers(config), _head_numbers(config, options)
    if encoder + head > _SLACK * available:
        largest = sorted(shapes, key=lambda name: -math.prod(shapes[name]))[:3]
        sizes = ", ".join(f"{name} {list(shapes[name])}" for name in largest)
        raise CheckpointError(
            f"{path} does not fit the configuration: it holds {available:,} numbers, the "
            f"configuration describes {encoder:,} of the encoder and {head:,} of the head.\n"
            f"Largest tensors: {sizes}. Configuration: {config.to_dict()!s:.2000}"
        )


def _encoder_numbers(config):
    """Of the tables and kernels, which are nearly all."""
    hidden = config.hidden_size
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    heads = config.num_hidden_layers * config.num_attention_heads
    heads -= sum(len(pruned) for pruned in config.pruned_heads.values())
    wide = config.num_hidden_layers * config.intermediate_size
    return rows * hidden + 4 * hidden * heads * config.head_size + 2 * hidden * wide


def _head_numbers(config, options):
    """Of the head and the whitening that the files name, whether or not they are loaded."""
    classes = max(
        options.get("num_classes") or 0,
        len(options.get("labels") or ()),
        len(config.extra.get("id2label") or ()),
    )
    width = 2 * config.hidden_size  # two kinds of pooling may be concatenated
    transitions = classes**2 if options.get("use_crf") else 0
    return (classes + (options.get("whitening_size") or 0)) * width + transitions
