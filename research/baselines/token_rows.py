"""Rows of tokens of text files, for language models and word vectors.

Glossary: `B` rows, `T` tokens of a row.
"""

import os
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.progress import progress_bar
from bert_tf.base.python_functions import from_generator
from bert_tf.base.regular_files import open_input
from bert_tf.errors import DataError, UserError
from bert_tf.text.tokenizer_base import Tokenizer

_LINES = 4096  # tokenized at once


class TokenRows:
    """The documents of text files as rows `[CLS] … [SEP]` of at most `max_length` tokens.

    A document is cut into rows that are as long as possible. The tokens are in memory.

    Args:
        input_files: UTF-8 text files with one sentence per line and an empty line between
            documents, as for `bert-tf run_pretraining`.
        tokenizer: The tokenizer.
        max_length: `T`, at least 3.

    Attributes:
        num_tokens: The number of tokens of all rows, `[CLS]` and `[SEP]` counted.

    Raises:
        UserError: If `max_length` is less than 3.
        DataError: If a file cannot be read, or there is no text.

    Example:
        >>> from research.baselines import TokenRows
        >>> with open("two_documents.txt", "w") as file:
        ...     _ = file.write("a good film\\n\\nbad .\\n")
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
        >>> rows = TokenRows(["two_documents.txt"], tokenizer, max_length=32)
        >>> len(rows), rows.num_tokens
        (2, 9)
    """

    def __init__(
        self, input_files: Sequence[str | os.PathLike], tokenizer: Tokenizer, max_length: int
    ):
        if max_length < 3:
            raise UserError(f"`max_length` must be at least 3. Received: {max_length=}")
        self.tokenizer = tokenizer
        self.max_length = max_length
        self._rows = []
        size = max_length - 2
        for document in _documents(input_files, tokenizer):
            pieces = [document[start : start + size] for start in range(0, len(document), size)]
            self._rows += pieces
        if not self._rows:
            raise DataError(
                f"`input_files` must hold text. Received: {list(map(str, input_files))}"
            )
        self.num_tokens = sum(len(row) + 2 for row in self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def split(self, share: float, seed: int = 0) -> tuple["TokenRows", "TokenRows"]:
        """Returns the rows in two parts, of which the second has `share` of them.

        Args:
            share: Above 0 and below 1. Each part has at least one row.
            seed: The seed of the draw.

        Raises:
            DataError: If there is one row only.
        """
        if len(self) < 2:
            raise DataError("`input_files` must hold at least two rows to split. Received: 1 row")
        order = np.random.default_rng(seed).permutation(len(self))
        count = min(max(1, round(share * len(self))), len(self) - 1)
        return self._part(order[count:]), self._part(order[:count])

    def _part(self, indices) -> "TokenRows":
        part = object.__new__(TokenRows)
        part.tokenizer, part.max_length = self.tokenizer, self.max_length
        part._rows = [self._rows[index] for index in indices]
        part.num_tokens = sum(len(row) + 2 for row in part._rows)
        return part

    def rows(self, order: Sequence[int] | None = None) -> Iterator[np.ndarray]:
        """Yields the rows, int32 `[T]` with `[CLS]` and `[SEP]`, in an order of their numbers."""
        first, last = self.tokenizer.cls_token_id, self.tokenizer.sep_token_id
        for index in range(len(self)) if order is None else order:
            yield np.concatenate([[first], self._rows[index], [last]]).astype(np.int32)

    def batches(self, batch_size: int, seed: int | None = None) -> tf.data.Dataset:
        """Returns token dictionaries: `token_ids` int32 and `padding_mask` bool, both `[B, T]`.

        Args:
            batch_size: B.
            seed: The seed of the order, which is new in every epoch; the epochs do not end.
                None for one epoch in the order of the files.
        """

        def generate():
            epoch = 0
            while True:
                order = None
                if seed is not None:
                    order = np.random.default_rng([seed, epoch]).permutation(len(self))
                yield from self.rows(order)
                epoch += 1
                if seed is None:
                    return

        signature = tf.TensorSpec([None], tf.int32)
        rows = from_generator(generate, output_signature=signature)
        count = len(self) if seed is None else tf.data.INFINITE_CARDINALITY
        rows = rows.apply(tf.data.experimental.assert_cardinality(count))
        pad_id = self.tokenizer.pad_token_id
        batches = rows.padded_batch(batch_size, [None], pad_id)
        batches = batches.map(lambda ids: {"token_ids": ids, "padding_mask": ids != pad_id})
        return batches.prefetch(4)


def _documents(input_files, tokenizer) -> Iterator[np.ndarray]:
    """Yields the tokens of each document, int32."""
    for path in input_files:
        try:
            with open_input(path, "r", encoding="utf-8") as file:
                lines = [line.strip() for line in file]
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path} must be a UTF-8 text file. Received: {error}") from None
        document = []
        starts = range(0, len(lines), _LINES)
        for start in progress_bar(starts, desc="tokenizing", unit_scale=_LINES, leave=False):
            part = lines[start : start + _LINES]
            ids = tokenizer.tokenize(part)
            values, splits = ids.values.numpy(), ids.row_splits.numpy()
            for line, first, last in zip(part, splits, splits[1:]):
                if line:
                    document.append(values[first:last])
                elif document:
                    yield np.concatenate(document)
                    document = []
        if document:
            yield np.concatenate(document)
