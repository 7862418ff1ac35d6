"""Leaves the lower part of a backbone as it is."""

import keras

from bert_tf.errors import UserError


def freeze_layers(model: keras.Model, num_layers: int, embeddings: bool = True) -> None:
    """Freezes the first encoder blocks; the other blocks are made trainable.

    Nothing is computed backwards below the lowest trainable layer, so training takes less time and
    memory too. Call it before `fit`; the heads and the pooler stay as they are.

    Args:
        model: A model with a `backbone`.
        num_layers: How many blocks, counted from the embeddings.
        embeddings: Whether the embeddings are frozen.

    Raises:
        UserError: If the model has fewer blocks, or LoRA, which freezes in its own way.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.training.freeze_layers(model, num_layers=1)
        >>> [block.trainable for block in model.backbone.encoder.blocks]
        [False, True]
    """
    blocks = model.backbone.encoder.blocks
    if not 0 <= num_layers <= len(blocks):
        raise UserError(
            f"`num_layers` must be in [0, {len(blocks)}], the number of blocks. "
            f"Received: num_layers={num_layers}"
        )
    if getattr(model, "lora", None) is not None:
        raise UserError("LoRA freezes the whole backbone. Received: a model with LoRA enabled.")
    model.backbone.embeddings.trainable = not embeddings
    for index, block in enumerate(blocks):
        block.trainable = index >= num_layers
