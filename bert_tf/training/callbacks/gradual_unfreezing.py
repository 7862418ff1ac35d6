"""Unfreezes a backbone block by block, from the top, during training."""

import keras

from bert_tf.errors import user_error
from bert_tf.training.freezing import freeze_layers


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
