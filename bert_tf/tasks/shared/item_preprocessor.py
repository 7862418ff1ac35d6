"""What the tasks share that label the items of lists: words of sentences, sentences of documents.

Glossary: `M` items of all lists, `T` tokens of a window.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.errors import UserError, require
from bert_tf.inputs.labels import row_weights
from bert_tf.inputs.token_rows import MarkedRows
from bert_tf.models.preprocessor import Preprocessor


@keras.saving.register_keras_serializable(package="bert_tf")
class ItemPreprocessor(Preprocessor):
    """Maps lists of strings to windows with a marked token for each item, and their labels.

    Args:
        **options: The arguments of `Preprocessor`.

    Attributes:
        item: What an item is called.
    """

    item = "item"

    def windows(self, lists: Sequence[Sequence[str]]) -> MarkedRows:
        """Returns the windows of lists, which are cut between items."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `windows`.")

    def item_labels(self, lists: Sequence[Sequence[str]], y: Any) -> np.ndarray:
        """Returns the labels of all items, int32 `[M]`, from what `targets` returned, or None.

        Raises:
            UserError: If there is not one label for each item.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `item_labels`.")

    def training_rows(self, columns, y, sample_weight):
        """Returns the windows to train on, and their labels and weights, if any.

        Raises:
            UserError: If there is no item, not one label for each, or not one weight for each list.
        """
        (lists,) = columns
        labels = self.item_labels(lists, y)
        if not len(labels):
            raise UserError(f"`x` must have at least one {self.item}. Received: none.")
        windows = self.encode(columns)
        labels = (windows.labels(labels),)
        if sample_weight is not None:
            labels += (row_weights(sample_weight, len(lists))[windows.examples],)
        return windows, labels

    def encode(self, columns, window_stride=None):
        """Returns the windows of the lists.

        Raises:
            UserError: If there is no tokenizer, or `window_stride` is given.
        """
        rule = f"must be None: what is too long is cut between {self.item}s"
        require(window_stride is None, rule, UserError, window_stride=window_stride)
        self.require_tokenizer()
        return self.windows(columns[0])

    def postprocess(self, values, rows, columns, pooling):
        """Returns `logits` `[M, …]` of the items, and the `row_splits` of the lists."""
        return {"logits": rows.marked_values(values), "row_splits": rows.item_splits}
