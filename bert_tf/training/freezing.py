"""Freezes the lower part of a backbone."""

import keras

from bert_tf.errors import UserError


def freeze_layers(model: keras.Model, num_layers: int, embeddings: bool = True) -> None:
    """Freezes the first encoder blocks and makes the other blocks trainable.

    Gradients are not computed below the lowest trainable layer, so training needs less time and
    memory. Call it before `fit`. The heads and the pooler are not changed.

    Args:
        model: A model with a `backbone`.
        num_layers: The number of blocks to freeze, counted from the embeddings; -1 for all.
        embeddings: Whether the embeddings are frozen.

    Raises:
        UserError: If the model has fewer blocks, or if LoRA is enabled.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.training.freeze_layers(model, num_layers=1)
        >>> [block.trainable for block in model.backbone.encoder.blocks]
        [False, True]
    """
    if num_layers == -1:
        num_layers = len(model.backbone.encoder.blocks)
    blocks = encoder_blocks(model, num_layers)
    if getattr(model, "lora", None) is not None:
        raise UserError(
            "`model` must not have LoRA, which freezes the whole backbone. Received: a model with "
            "LoRA enabled."
        )
    model.backbone.embeddings.trainable = not embeddings
    for index, block in enumerate(blocks):
        block.trainable = index >= num_layers
    distance_bias = model.backbone.encoder.distance_bias
    if distance_bias is not None:  # all blocks share it
        distance_bias.trainable = num_layers < len(blocks)


def encoder_blocks(model: keras.Model, num_layers: int) -> list[keras.layers.Layer]:
    """Returns the blocks of the encoder, of which there must be at least `num_layers`.

    Raises:
        UserError: If there are fewer.
    """
    blocks = model.backbone.encoder.blocks
    if not 0 <= num_layers <= len(blocks):
        raise UserError(
            f"`num_layers` must be in [0, {len(blocks)}], the number of blocks. "
            f"Received: num_layers={num_layers}"
        )
    return blocks
