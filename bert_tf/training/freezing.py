"""Freezes the lower part of a backbone, also block by block, or initializes its top again."""

import keras

from bert_tf.errors import UserError, require, user_error


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
        received = "a model with LoRA enabled."
        raise user_error("`model`", "not have LoRA, which freezes the whole backbone", received)
    model.backbone.embeddings.trainable = not embeddings
    for index, block in enumerate(blocks):
        block.trainable = index >= num_layers
    for part in model.backbone.encoder.shared_parts():
        part.trainable = num_layers < len(blocks)


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


def encoder_blocks(model: keras.Model, num_layers: int) -> list[keras.layers.Layer]:
    """Returns the encoder's blocks. Raises `UserError` if there are fewer than `num_layers`."""
    blocks = model.backbone.encoder.blocks
    rule = f"must be in [0, {len(blocks)}], the number of blocks"
    require(0 <= num_layers <= len(blocks), rule, UserError, num_layers=num_layers)
    return blocks


class GradualUnfreezing(keras.callbacks.Callback):
    """Trains the heads first, then unfreezes one block after the other; the embeddings are last.

    Args:
        first_blocks: The number of top blocks that are trained from the first epoch.
        epochs_per_block: The number of epochs until the next block is unfrozen.

    Raises:
        UserError: If `first_blocks` is negative or `epochs_per_block` is less than 1.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> unfreezing = bert_tf.training.GradualUnfreezing()
        >>> model.fit(texts, labels, epochs=2, callbacks=[unfreezing])
        >>> [block.trainable for block in model.backbone.encoder.blocks]
        [False, True]

    Reference: Howard and Ruder 2018 (arXiv 1801.06146), section 3.3.
    """

    def __init__(self, first_blocks: int = 0, epochs_per_block: int = 1):
        super().__init__()
        if first_blocks < 0 or epochs_per_block < 1:
            expected = "be at least 0 and `epochs_per_block` at least 1"
            received = f"first_blocks={first_blocks}, epochs_per_block={epochs_per_block}"
            raise user_error("`first_blocks`", expected, received)
        self.first_blocks = first_blocks
        self.epochs_per_block = epochs_per_block

    def on_train_begin(self, logs=None):
        self._open = None

    def on_epoch_begin(self, epoch, logs=None):
        num_blocks = len(self.model.backbone.encoder.blocks)
        opened = min(self.first_blocks + epoch // self.epochs_per_block, num_blocks + 1)
        if opened != self._open:
            freeze_layers(self.model, max(0, num_blocks - opened), embeddings=opened <= num_blocks)
            self._open = opened
