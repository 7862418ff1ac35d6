"""A text or a pair as the one row of tokens that is inspected, with the place of every piece.

Glossary: `T` tokens of the row.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.text import Tokenizer

# The number of a text, and of a word, that special tokens such as [CLS] have.
SPECIAL = -1
TOKENS_OF_COPIES = 4096  # of changed copies of a row that are computed at a time
_CLS, _SEP = -1, -2  # in place of the number of a piece


class InspectedRow:
    """The tokens of a text or of a pair, cut at `max_length` as the model cuts them.

    Args:
        tokenizer: The tokenizer of the model.
        texts: One text or two.
        max_length: The maximum number of tokens of the row.

    Attributes:
        texts: The argument.
        tokens: `token_ids`, `segment_ids` and `padding_mask`, each `[1, T]`.
        ids: int32 `[T]`.
        pieces: The T pieces as people read them.
        text_numbers: int64 `[T]`: 0 or 1, the number of each piece's text, or `SPECIAL`.
        starts, ends: int64 `[T]`: the first character (code point) of each piece in its text and
            the one after its last; 0 for special tokens.
        words: int64 `[T]`: the number of the word of each piece, or `SPECIAL`.
        num_cut: The number of pieces that were cut.
    """

    def __init__(self, tokenizer: Tokenizer, texts: tuple[str, ...], max_length: int):
        self.tokenizer = tokenizer
        self.texts = texts
        pieces = [tokenizer.tokenize_with_offsets([text], trim_offsets=True) for text in texts]
        counts = [int(part.ids.row_lengths()[0]) for part in pieces]
        source, segments = piece_numbers(tokenizer, counts, max_length)
        self.num_cut = sum(counts) - int((source >= 0).sum())

        def of_row(values, special):
            joined = np.concatenate([np.asarray(part, np.int64) for part in values])
            padded = np.append(joined, 0)  # so that an empty text has an entry to look up
            return np.where(source >= 0, padded[np.maximum(source, 0)], special)

        specials = np.where(source == _CLS, tokenizer.cls_token_id, tokenizer.sep_token_id)
        self.ids = of_row([p.ids.values.numpy() for p in pieces], specials).astype(np.int32)
        self.starts = of_row([p.char_starts.values.numpy() for p in pieces], 0)
        self.ends = of_row([p.char_ends.values.numpy() for p in pieces], 0)
        self.text_numbers = of_row([np.full(n, i) for i, n in enumerate(counts)], SPECIAL)
        self.words = self._words(source)
        self.tokens = {
            "token_ids": tf.constant(self.ids[np.newaxis]),
            "segment_ids": tf.constant(segments[np.newaxis].astype(np.int32)),
            "padding_mask": tf.ones([1, len(source)], tf.bool),
        }
        self.readable = tokenizer.readable_pieces()
        self.pieces = [self.readable[number] for number in self.ids]

    def __len__(self) -> int:
        return len(self.ids)

    def _words(self, source):
        """Numbers the words: a piece begins one unless it continues that of the piece before it.

        That piece must be next to it in the text too: in the middle, pieces may have been cut.
        """
        is_text = source >= 0
        continues = self.tokenizer.continues_word()[self.ids] & is_text
        continues[1:] &= source[1:] == source[:-1] + 1
        continues[1:] &= self.text_numbers[1:] == self.text_numbers[:-1]
        continues[0] = False
        return np.where(is_text, np.cumsum(is_text & ~continues) - 1, SPECIAL)

    @property
    def num_words(self) -> int:
        """The number of words."""
        return int(self.words.max(initial=SPECIAL)) + 1

    @property
    def hiding_id(self) -> int:
        """The id of the piece that hides others: `[MASK]`, or `[UNK]` where there is none."""
        mask = self.tokenizer.mask_token_id
        return self.tokenizer.unk_token_id if mask is None else mask

    def copies(self, count: int, **changed: Any) -> dict[str, tf.Tensor]:
        """Returns the tokens `[count, T]`, with other values for the names that are given."""
        tokens = {name: tf.repeat(values, count, axis=0) for name, values in self.tokens.items()}
        return {**tokens, **changed}

    def sum_of_words(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the values `[T]` of each word's pieces, without special tokens'."""
        is_text = self.words != SPECIAL
        return np.bincount(self.words[is_text], values[is_text], self.num_words)


def piece_numbers(
    tokenizer: Tokenizer, counts: list[int], max_length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns which piece each token of a row is, and the segment ids, int32 `[T]`.

    Args:
        tokenizer: The tokenizer.
        counts: The number of pieces of each text, one or two, which are numbered together from 0.
        max_length: Where the row is cut.
    """
    numbers = [tf.RaggedTensor.from_row_splits(tf.range(n), [0, n]) for n in counts]
    if len(numbers) > 1:
        numbers[1] += counts[0]
    rows = tokenizer.join_segments(*(*numbers, None)[:2], _CLS, _SEP, max_length)
    return tuple(row[0].numpy() for row in rows)


def require_text(name: str, text: str) -> None:
    """Raises `UserError` if `text`, the argument `name`, is no string or not valid Unicode."""
    if not isinstance(text, str):
        raise UserError(f"`{name}` must be a string. Received: {name}={text!r:.80}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"`{name}` must be valid Unicode. Received: half of a surrogate pair, "
            f"U+{ord(text[error.start]):04X}, at character {error.start}"
        ) from None


def parts(num_rows: int, length: int) -> Iterator[slice]:
    """Yields slices of rows with at most `TOKENS_OF_COPIES` tokens together, or one row.

    Example:
        >>> [part.stop - part.start for part in parts(5, 2000)]
        [2, 2, 1]
    """
    size = max(1, TOKENS_OF_COPIES // max(length, 1))
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))


def in_parts(num_rows: int, length: int, compute: Callable[[slice], np.ndarray]) -> np.ndarray:
    """Returns what `compute` returns for the parts of the rows, one after another."""
    return np.concatenate([np.asarray(compute(part)) for part in parts(num_rows, length)])
