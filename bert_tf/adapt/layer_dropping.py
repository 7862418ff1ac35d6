"""Copies of a model with another configuration: a smaller one with some of its blocks."""

import dataclasses
from collections.abc import Sequence

import keras

from bert_tf.config import BertConfig
from bert_tf.errors import UserError, require, user_error
from bert_tf.models.backbone import BertBackbone


def clone_with_config(model, config: BertConfig, **options):
    """Returns a new model of the same class and settings, not compiled, with random weights.

    `config` is that of the new backbone, with the number of all its blocks; `options` are changes
    of the constructor's arguments, for a model with a backbone.
    """
    backbone = getattr(model, "backbone", model)
    settings = {"config": config.to_dict(), "num_encoder_layers": None}
    new = BertBackbone.from_config({**backbone.get_config(), **settings})
    new.pooler.is_missing = backbone.pooler.is_missing
    if model is backbone:
        return new
    head = {**model.get_config(), "backbone": keras.saving.serialize_keras_object(new)}
    copy = type(model).from_config({**head, **options})
    copy.untrained_heads = model.untrained_heads  # both callers copy the weights
    return copy


def spread_layers(count: int, num_layers: int) -> list[int]:
    """Returns the indices of `count` of the blocks at even distances, including the last block.

    Raises:
        UserError: If `count` is not in [1, num_layers].

    Example:
        >>> spread_layers(4, 12)
        [2, 5, 8, 11]

    Reference: g(m) of Jiao et al. 2020 (TinyBERT, arXiv 1909.10351), counted from 1.
    """
    if not 1 <= count <= num_layers:
        expected = f"be in [1, {num_layers}], those of the teacher"
        raise user_error("The number of blocks", expected, count)
    return [(index + 1) * num_layers // count - 1 for index in range(count)]


def student_from_teacher(
    teacher, num_hidden_layers: int | None = None, layers: Sequence[int] | None = None
):
    """Returns a copy of a model with some of its blocks, which `DistillationModel` trains.

    Args:
        teacher: A `BertBackbone` or a model with one. It is not changed.
        num_hidden_layers: The number of blocks, taken at even distances (`spread_layers`).
        layers: Or the indices of the blocks, from 0, in ascending order.

    Returns:
        The student, a model of the same class with the same tokenizer, labels and options. It is
        not compiled and shares no variables with the teacher.

    Raises:
        UserError: If not exactly one of the two is given, it is out of range, or the teacher is
            quantized, prepacked, or has LoRA, a `ScalarMix` or a `LayerMean`.

    Example:
        >>> teacher = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> student = bert_tf.adapt.student_from_teacher(teacher, num_hidden_layers=1)
        >>> student.backbone.config.num_hidden_layers
        1

    Reference: Sanh et al. 2019 (arXiv 1910.01108), section 3, which takes every other block.
    """
    backbone = getattr(teacher, "backbone", teacher)
    num_layers = len(backbone.encoder.blocks)
    if (num_hidden_layers is None) == (layers is None):
        received = f"num_hidden_layers={num_hidden_layers!r}, layers={layers!r}"
        raise user_error("Exactly one of `num_hidden_layers` and `layers`", "be given", received)
    layers = list(spread_layers(num_hidden_layers, num_layers) if layers is None else layers)
    rule = f"must be some of 0 to {num_layers - 1}, the teacher's blocks, in ascending order"
    is_valid = layers and layers == sorted(set(layers) & set(range(num_layers)))
    require(is_valid, rule, UserError, layers=layers)
    rule = "of the teacher must be False: its weights are for its own blocks"
    require(not getattr(teacher, "use_scalar_mix", False), rule, UserError, use_scalar_mix=True)
    start = getattr(teacher, "layer_start", None)
    rule = "of the teacher must be None: its weights are for its own blocks"
    require(start is None, rule, UserError, layer_start=start)
    usual = {"global_attn_every_n_layers": None, "first_block_norm": True, "conv_kernel_size": 0}
    given = {name: getattr(backbone.config, name) for name in usual}
    rule = "of the teacher must be None, True and 0: each block is made for its place"
    require(given == usual, rule, UserError, **given)
    backbone.require_kernels("copied block by block")
    if teacher is not backbone:
        teacher.require_merged("copied block by block")
    pruned = backbone.config.pruned_heads
    pruned = {new: pruned[old] for new, old in enumerate(layers) if old in pruned}
    sizes = {"num_hidden_layers": len(layers), "pruned_heads": pruned}
    student = clone_with_config(teacher, dataclasses.replace(backbone.config, **sizes))
    dropped = [block for i, block in enumerate(backbone.encoder.blocks) if i not in layers]
    unused = {id(weight) for block in dropped for weight in block.weights}
    kept = [weight for weight in teacher.weights if id(weight) not in unused]
    for copy, weight in zip(student.weights, kept, strict=True):
        copy.assign(weight)
    return student
