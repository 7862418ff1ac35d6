"""Position tables that are computed: longer ones from learned ones, and sinusoidal ones."""

import dataclasses

import numpy as np

from bert_tf.adapt.layer_dropping import clone_with_config
from bert_tf.errors import UserError, require
from bert_tf.layers.embeddings import sinusoidal_positions


def resize_position_embeddings(model, new_length: int, alpha: float = 0.4):
    """Returns a copy of a model that takes sequences of up to `new_length` tokens.

    With n trained positions p, position i·n + j gets alpha·u_i + (1 - alpha)·u_j, where
    u_i = (p_i - alpha·p_0) / (1 - alpha). The first n positions stay as they are, bit by bit.
    Fine-tune the copy on long texts. `BertBackbone(attention_window=...)` bounds time and memory.

    Args:
        model: A `BertBackbone` or a model with one. It is not changed.
        new_length: Positions of the copy, more than n and at most n².
        alpha: In (0, 1) without 0.5: the weight of i against j.

    Returns:
        The copy, not compiled. A task model cuts its texts at `new_length`.

    Raises:
        UserError: If an argument is out of its range, or the encoder has no positions.

    Example:
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> classifier = bert_tf.adapt.resize_position_embeddings(classifier, 2048)
        >>> classifier.backbone.config.max_position_embeddings
        2048

    Reference: Su Jianlin 2020, "Hierarchical decomposition of position encodings: BERT for very
    long texts" (kexue.fm/archives/7947).
    """
    backbone = getattr(model, "backbone", model)
    backbone.config.require_bert_blocks("given more position embeddings")
    trained = backbone.embeddings.position_embeddings.numpy()
    length = len(trained)
    rule = f"must be in [{length + 1}, {length**2}]: the model has {length} positions"
    require(length < new_length <= length**2, rule, UserError, new_length=new_length)
    # At 0.5 position (i, j) would equal (j, i).
    require(0 < alpha < 1 and alpha != 0.5, "must be in (0, 1) and not 0.5", UserError, alpha=alpha)
    config = dataclasses.replace(backbone.config, max_position_embeddings=new_length)
    copy = clone_with_config(model, config, max_length=None)
    table = getattr(copy, "backbone", copy).embeddings.position_embeddings
    for new, old in zip(copy.weights, model.weights, strict=True):
        if new is not table:
            new.assign(old)
    table.assign(_extended(trained, new_length, alpha))
    return copy


def set_sinusoidal_positions(model) -> None:
    """Gives a model the position table of Vaswani et al. 2017, which is not trained.

    The table is saved like a learned one, so every program computes with it. A model that is opened
    again trains it, unless this function is called again. Call it before the model is compiled.

    Args:
        model: A `BertBackbone` or a model with one, and perhaps a decoder, with random weights.

    Raises:
        UserError: If the encoder has no positions.

    Example:
        >>> config = bert_tf.BertConfig(vocab_size=64, hidden_size=32, num_attention_heads=4)
        >>> backbone = bert_tf.BertBackbone(config)
        >>> bert_tf.adapt.set_sinusoidal_positions(backbone)
        >>> backbone.embeddings.position_embeddings.numpy()[0, :4]
        array([0., 1., 0., 1.], dtype=float32)

    Reference: Vaswani et al. 2017 (arXiv 1706.03762), section 3.5.
    """
    readers = (getattr(model, "backbone", model), getattr(model, "decoder", None))
    readers[0].config.require_bert_blocks("given a table of positions")
    for reader in filter(None, readers):
        table = reader.embeddings.position_embeddings
        table.assign(sinusoidal_positions(*table.shape))
        table.trainable = False


def _extended(trained, new_length, alpha):
    """`[n, H]` -> `[new_length, H]`."""
    base = trained.astype(np.float64)
    base = (base - alpha * base[0]) / (1 - alpha)
    stretch, place = np.divmod(np.arange(new_length), len(trained))
    table = (alpha * base[stretch] + (1 - alpha) * base[place]).astype(np.float32)
    table[: len(trained)] = trained
    return table
