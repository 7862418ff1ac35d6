"""Batches of question windows: for training in shuffled order, for prediction by length.

Glossary: `W` windows, `B` rows of a batch, `T` length of its longest window.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.data.token_budget import token_batches
from bert_tf.tasks.question_answering.context_windows import QuestionWindow


class WindowBatches:
    """Makes datasets of windows.

    Args:
        windows: W windows.
        tokenizer: The `BertTokenizer` they were made with.
        targets: int `[W, 2]`, the answer's first and last token in each; None to predict.
        weights: float `[W]`, of each in the loss; None for 1.
        length: What batches are padded to; None for their longest window.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = bert_tf.tasks.question_answering.question_windows(
        ...     tokenizer, ["Where?"], ["In Paris. " * 300]
        ... )
        >>> batches = WindowBatches(windows, tokenizer, targets=[[1, 1]] * len(windows))
        >>> tokens, targets = next(iter(batches.shuffled(batch_size=2, seed=1)))
        >>> targets.shape
        TensorShape([2, 2])
    """

    def __init__(
        self,
        windows: Sequence[QuestionWindow],
        tokenizer,
        targets: np.ndarray | None = None,
        weights: np.ndarray | None = None,
        length: int | None = None,
    ):
        ids = [w.token_ids(tokenizer.cls_token_id, tokenizer.sep_token_id) for w in windows]
        self.lengths = np.array([len(row) for row in ids], np.int64)
        self._token_ids = tf.RaggedTensor.from_row_lengths(np.concatenate(ids), self.lengths)
        self._offsets = tf.constant([window.offset for window in windows], tf.int32)
        self._labels = tuple(
            tf.constant(values, dtype)
            for values, dtype in ((targets, tf.int32), (weights, tf.float32))
            if values is not None
        )
        self._pad_token_id = tokenizer.pad_token_id
        self._length = length

    def __len__(self) -> int:
        return len(self.lengths)

    def shuffled(self, batch_size: int, seed: int | None = None) -> tf.data.Dataset:
        """One epoch, in another order each time it is read."""
        rows = tf.data.Dataset.range(len(self)).shuffle(len(self), seed=seed)
        return self._batches(rows.batch(batch_size))

    def in_order(self, batch_size: int) -> tf.data.Dataset:
        """One epoch, from the first window to the last."""
        return self._batches(tf.data.Dataset.range(len(self)).batch(batch_size))

    def from_step(
        self, step: int, num_train_steps: int, batch_size: int, seed: int
    ) -> tf.data.Dataset:
        """The batches of a whole run behind `step`, a function of the arguments alone.

        Every epoch is an order of its own; a batch may hold the end of one and the start of the
        next, so all batches are full.
        """
        random = np.random.default_rng(seed)
        count = num_train_steps * batch_size
        epochs = [random.permutation(len(self)) for _ in range(-(-count // len(self)))]
        rows = np.concatenate(epochs)[:count].reshape(num_train_steps, batch_size)
        return self._batches(tf.data.Dataset.from_tensor_slices(rows[step:]))

    def by_length(self, token_budget: int, batch_size: int | None = None) -> tf.data.Dataset:
        """All windows, the longest first, `example_index` being the window.

        Args:
            token_budget: The most tokens of a batch, padding counted.
            batch_size: The most rows of a batch.
        """
        order, splits, _ = token_batches(self.lengths, token_budget, batch_size, padded=True)
        rows = tf.RaggedTensor.from_row_splits(order, splits)
        return self._batches(tf.data.Dataset.from_tensor_slices(rows), with_index=True)

    def _batches(self, rows, with_index=False):
        def batch(rows):
            token_ids = tf.gather(self._token_ids, rows)  # ragged [B, (T)]
            mask = tf.sequence_mask(token_ids.row_lengths(), self._length)
            positions = tf.range(tf.shape(mask)[1])
            in_context = positions >= tf.gather(self._offsets, rows)[:, tf.newaxis]  # [B, T]
            features = {
                "token_ids": token_ids.to_tensor(self._pad_token_id, shape=[None, self._length]),
                "segment_ids": tf.cast(in_context & mask, tf.int32),
                "padding_mask": mask,
            }
            if with_index:
                return {**features, "example_index": rows}
            return (features, *(tf.gather(values, rows) for values in self._labels))

        batches = rows.map(batch, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
        return batches.prefetch(tf.data.AUTOTUNE)
