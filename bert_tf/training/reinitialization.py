"""Initializes the top of a pre-trained backbone again, because it is specific to pre-training."""

import keras

from bert_tf.training.freezing import encoder_blocks


def reinitialize_top_layers(
    model: keras.Model, num_layers: int, pooler: bool = True, seed: int | None = None
) -> None:
    """Initializes the weights of the last encoder blocks and of the pooler again.

    Args:
        model: A model with a `backbone`.
        num_layers: The number of blocks, counted from the top.
        pooler: Whether the pooler is initialized too.
        seed: The seed. None uses the global random state of Keras.

    Raises:
        UserError: If the model has fewer blocks, or its kernels are prepacked or quantized.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> bert_tf.training.reinitialize_top_layers(model, num_layers=2, seed=1)

    Reference: Zhang et al. 2021 (arXiv 2006.05987), section 4.
    """
    backbone = model.backbone
    blocks = encoder_blocks(model, num_layers)
    backbone.require_kernels("initialized again")
    layers = [*blocks[len(blocks) - num_layers :], *([backbone.pooler] if pooler else [])]
    variables = [variable for layer in layers for variable in layer.variables]
    for index, variable in enumerate(variables):
        if variable.name == "kernel":
            initializer = keras.initializers.TruncatedNormal(
                stddev=backbone.config.initializer_range,
                seed=None if seed is None else seed + index,
            )
        elif variable.name in ("gamma", "beta", "bias"):
            initializer = keras.initializers.Constant(1.0 if variable.name == "gamma" else 0.0)
        else:
            continue  # the state of a dropout's random stream
        variable.assign(initializer(variable.shape, variable.dtype))
