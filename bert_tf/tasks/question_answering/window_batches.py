"""Windows of questions and contexts as rows of tokens.

Glossary: `W` windows, `B` rows of a batch, `T` length of its longest window.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.models.text_batches import batches_of_numbers, training_batches
from bert_tf.tasks.question_answering.context_windows import QuestionWindow


class WindowBatches:
    """Windows that batches are made of.

    Args:
        windows: W windows, those of the first question first.
        tokenizer: The `BertTokenizer` they were made with.
        targets: int `[W, 2]`, the answer's first and last token in each; None to predict.
        weights: float `[W]`, of each in the loss; None for 1.
        length: What batches for training are padded to; None for their longest window.

    Attributes:
        windows: The windows.
        examples: int64 `[W]`, the question of each.
        labels: Targets and weights, those that there are.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = bert_tf.tasks.question_answering.question_windows(
        ...     tokenizer, ["Where?"], ["In Paris. " * 300]
        ... )
        >>> batches = WindowBatches(windows, tokenizer, targets=[[1, 1]] * len(windows))
        >>> tokens, targets = next(iter(batches.shuffled(batch_size=2)))
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
        self.windows = windows
        self.examples = np.array([window.example for window in windows], np.int64)
        self._lengths = np.array([len(row) for row in ids], np.int64)
        values = np.concatenate([np.zeros([0], np.int32), *ids])
        self._token_ids = tf.RaggedTensor.from_row_lengths(values, self._lengths)
        self._offsets = tf.constant([window.offset for window in windows], tf.int32)
        self.labels = tuple(
            np.asarray(values, dtype)
            for values, dtype in ((targets, np.int32), (weights, np.float32))
            if values is not None
        )
        self._pad_token_id = tokenizer.pad_token_id
        self._length = length

    def __len__(self) -> int:
        return len(self._lengths)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every window, int64 `[W]`."""
        return self._lengths

    def batch(self, rows: tf.Tensor, length: int | None = None) -> dict[str, tf.Tensor]:
        """Returns the token dictionary of the windows `[B]`, padded to `length` or the longest."""
        token_ids = tf.gather(self._token_ids, rows)  # ragged [B, (T)]
        mask = tf.sequence_mask(token_ids.row_lengths(), length)
        positions = tf.range(tf.shape(mask)[1])
        in_context = positions >= tf.gather(self._offsets, rows)[:, tf.newaxis]  # [B, T]
        return {
            "token_ids": token_ids.to_tensor(self._pad_token_id, shape=[None, length]),
            "segment_ids": tf.cast(in_context & mask, tf.int32),
            "padding_mask": mask,
        }

    def shuffled(self, batch_size: int) -> tf.data.Dataset:
        """Returns one epoch, in another order each time it is read."""
        return training_batches(self, self.labels, batch_size, True, self._length)

    def in_order(self, batch_size: int) -> tf.data.Dataset:
        """Returns one epoch, from the first window to the last."""
        return training_batches(self, self.labels, batch_size, False, self._length)

    def from_step(
        self, step: int, num_train_steps: int, batch_size: int, seed: int
    ) -> tf.data.Dataset:
        """Returns the batches of a whole run after `step`, a function of the arguments alone.

        Every epoch has an order of its own; a batch may hold the end of one and the start of the
        next, so all batches are full.
        """
        random = np.random.default_rng(seed)
        count = num_train_steps * batch_size
        epochs = [random.permutation(len(self)) for _ in range(-(-count // len(self)))]
        rows = np.concatenate(epochs)[:count].reshape(num_train_steps, batch_size)
        return batches_of_numbers(
            self, self.labels, tf.data.Dataset.from_tensor_slices(rows[step:]), self._length
        )
