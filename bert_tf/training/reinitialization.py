"""Gives up the top of a pre-trained backbone, which is tuned to pre-training itself."""

import keras

from bert_tf.errors import UserError
from bert_tf.layers.initializers import bert_initializer


def reinitialize_top_layers(
    model: keras.Model, num_layers: int, pooler: bool = True, seed: int | None = None
) -> None:
    """Draws the weights of the last encoder blocks and of the pooler anew.

    Args:
        model: A model with a `backbone`.
        num_layers: How many blocks, counted from the top.
        pooler: Whether the pooler too.
        seed: None draws from Keras's global one.

    Raises:
        UserError: If the model has fewer blocks.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.training.reinitialize_top_layers(model, num_layers=2, seed=1)

    Reference: Zhang et al. 2021 (arXiv 2006.05987), section 4.
    """
    backbone = model.backbone
    blocks = backbone.encoder.blocks
    if not 0 <= num_layers <= len(blocks):
        raise UserError(
            f"`num_layers` must be in [0, {len(blocks)}], the number of blocks. "
            f"Received: num_layers={num_layers}"
        )
    backbone.require_kernels("drawn anew")
    layers = [*blocks[len(blocks) - num_layers :], *([backbone.pooler] if pooler else [])]
    variables = [variable for layer in layers for variable in layer.variables]
    for index, variable in enumerate(variables):
        if variable.name == "kernel":
            initializer = bert_initializer(
                backbone.config.initializer_range, None if seed is None else seed + index
            )
        elif variable.name in ("gamma", "beta", "bias"):
            initializer = keras.initializers.Constant(1.0 if variable.name == "gamma" else 0.0)
        else:
            continue  # the states of the dropouts' random streams
        variable.assign(initializer(variable.shape, variable.dtype))
