"""Compares a file with a model, then assigns its tensors to the model's variables.

`check_claims` compares the sizes in a JSON file with its weights before a model is allocated: it
only limits memory and time. All shapes are compared before the first tensor is assigned.
"""

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.base.json_schema import is_integer
from bert_tf.base.progress import progress_bar
from bert_tf.base.tensor_source import TensorSource, read_floats
from bert_tf.checkpoints.weight_names import Weight, part_names
from bert_tf.config import ABSOLUTE, DISENTANGLED, BertConfig
from bert_tf.errors import CheckpointError, require
from bert_tf.layers.encoder import number_of_distances
from bert_tf.models.task_spec import Head
from bert_tf.models.weight_rows import PROJECTION

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
    tensors by name. Raises `CheckpointError` if the weights cannot be those of such a model.
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
    rows = config.vocab_size + config.type_vocab_size
    if config.position_embedding_type in (ABSOLUTE, DISENTANGLED):  # which have tables of positions
        rows += config.position_offset + config.max_position_embeddings
    heads = config.num_blocks * config.num_attention_heads
    heads -= sum(len(pruned) for pruned in config.pruned_heads.values())
    wide = config.num_blocks * config.intermediate_size
    kernels = 4 * hidden * heads * config.head_size + 2 * hidden * wide
    kernels += config.conv_kernel_size * hidden**2
    if config.position_embedding_type == DISENTANGLED:
        kernels += 2 * number_of_distances(config) * hidden
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
    inputs, lstms = config.hidden_size, 0
    for units in options.get("lstm_units") or ():  # in both directions, as is usual
        lstms, inputs = lstms + 8 * units * (inputs + units), 2 * units
    width = max(width, 2 * inputs)
    numbers = (classes + sum(sizes)) * width + transitions + lstms
    for step in options.get("projection") or ():
        units = step.get("units")
        if is_integer(units):
            numbers, width = numbers + width * units, units
    return numbers


_logger = logging.getLogger("bert_tf")

# Names of LayerNorm weights in old Hugging Face files that were converted from TF checkpoints.
_OLD_LAYER_NORM = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
# A progress bar is shown from this size on; smaller files load in less than a second.
_LARGE_BYTES = 256 * 2**20

# A variable and the name of each of its parts in a file.
Assignment = tuple[Weight, tuple[str, ...]]


def find_tensor(source: TensorSource, names: Sequence[str]) -> str | None:
    """Returns which of `names` is in a file, also with another prefix or old spelling, or None."""
    candidates = list(names)
    if source.format == "huggingface":
        for new, old in _OLD_LAYER_NORM.items():
            candidates += [name.replace(new, old) for name in names]
        candidates += [f"bert.{candidate}" for candidate in candidates]
    return next((name for name in candidates if name in source.shapes), None)


def find_biases(source: TensorSource, head: Head) -> list[str | None]:
    """Returns the names of a head's biases in the file, None for a missing one.

    For a layer without a bias, it is the name of the kernel.
    """
    rows = [row for row in head.rows if getattr(row, source.format, None) is not None]
    names = ["kernel" if row.kind == PROJECTION else "bias" for row in rows]
    return [
        find_tensor(source, part_names(row, source.format, name)) for row, name in zip(rows, names)
    ]


def find_weights(source: TensorSource, weights: list[Weight]) -> list[str | None]:
    """Returns the names of the tensors of `weights` in the file, None for a missing one."""
    # None for a weight that the format has no name for.
    parts = [part for weight in weights for part in weight.parts[source.format] or (None,)]
    return [part and find_tensor(source, part.names) for part in parts]


def _plan_assignment(source, weights) -> tuple[list[Assignment], list[str]]:
    """Returns the assignments and the names of the file's unused tensors."""
    problems, plan, used = [], [], set()
    name_in_file = getattr(source, "name_in_file", str)
    for weight in weights:
        found = []
        parts = weight.parts[source.format]
        if not parts:
            problems.append(f"  missing: {weight.name}, which this format has no name for")
        for part in parts:
            name = find_tensor(source, part.names)
            if name is None:
                missing = name_in_file(part.names[0])
                problems.append(f"  missing: {missing}, expected shape {list(part.shape)}")
                continue
            found.append(name)
            expected, received = list(part.shape), list(source.shapes[name])
            if received != expected:
                name = name_in_file(name)
                problems.append(f"  {name}: expected shape {expected}, received {received}")
        plan.append((weight, tuple(found)))
        used.update(found)
    if problems:
        problems.insert(0, f"{source.path} must fit the configuration. Received:")
        raise CheckpointError("\n".join(problems))
    # The unused tensors, each once even if it has several names.
    aliases = getattr(source, "aliases", {})
    used = {aliases.get(name, name) for name in used}
    rest = {aliases.get(name, name): name for name in source.shapes}
    return plan, sorted(name for key, name in rest.items() if key not in used)


def assign_weights(
    source: TensorSource, weights: list[Weight], also_used: Sequence[str] = ()
) -> tuple[list[Assignment], list[str]]:
    """Loads `weights` from `source` and logs the names of the file's unused tensors.

    In addition to the model, only one variable's tensors are in memory. `also_used` names tensors
    that have already been loaded in another way. Returns the assignments and the names of the
    unused tensors.

    Raises `CheckpointError` if tensors are missing or have another shape; the message lists all of
    them and nothing is assigned. Also if values are damaged, not floating-point or not finite.
    """
    plan, unused = _plan_assignment(source, weights)
    unused = [name for name in unused if name not in also_used]
    size = sum(4 * math.prod(weight.variable.shape) for weight, _ in plan)
    is_small = size < _LARGE_BYTES
    progress = progress_bar(
        total=size, unit="B", unit_scale=True, desc="loading weights", disable=is_small
    )
    for weight, found in plan:
        variable, arrays = weight.variable, []
        for name, part in zip(found, weight.parts[source.format]):
            values = read_floats(source, name)
            # Keras formats keep the heads in a separate axis, e.g. [H, N, D] -> [H, N * D].
            shape = (*variable.shape[:-1], -1)
            arrays.append((values.T if part.transposed else values).reshape(shape))
        # Always a copy: TensorFlow may use the array as the variable's memory and train in it, and
        # `arrays` may be views of a file.
        variable.assign(np.concatenate(arrays, axis=-1) if len(arrays) > 1 else np.array(arrays[0]))
        progress.update(4 * math.prod(variable.shape))
    progress.close()
    if unused:
        _logger.info("%s: not used: %s", source.path, ", ".join(unused))
    return plan, unused
