"""Sentences of words to windows of pieces, and a value for each token to one for each word.

Only the first piece of a word is labelled and read (Devlin et al. 2019, section 5.3). Windows hold
the words in their order, each once.

Glossary: `S` windows, `W` words of all sentences, `B` rows of a batch, `T` its longest window.
"""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import (
    is_container,
    is_missing,
    is_text,
    plain_rows,
    refuse_missing,
    shown,
)
from bert_tf.errors import DataError, UserError
from bert_tf.models.text_batches import IGNORED
from bert_tf.models.tokenized_texts import RaggedRows
from bert_tf.text import packing

# The feature that marks the first pieces.
WORD_STARTS = "word_starts"
# Words after which a long sentence is cut rather than elsewhere.
CLAUSE_ENDS = frozenset("。！？；…!?;.")


def pack_words(
    tokenizer, words: tf.Tensor, row_splits: tf.Tensor, max_length: int, keeps_empty: bool = False
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]:
    """Packs the words of sentences into windows of at most `max_length` tokens.

    A word without pieces (white space, control characters) is `[UNK]`, so that every word has a
    tag; a word longer than a window keeps the pieces that fit. A sentence that does not fit is cut
    after the last word of a clause in the second half of the window, or else where it is full.

    Args:
        tokenizer, words, row_splits: A `BertTokenizer`, and what `flat_words` returns.
        max_length: The maximum number of tokens of a window, `[CLS]` and `[SEP]` included.
        keeps_empty: Whether a sentence without words has a window without words, or none.

    Returns:
        The token ids with `[CLS]` and `[SEP]`, ragged int32 `[S, (T)]`; which of them are the first
        pieces of words, ragged bool `[S, (T)]`; the sentence of each window, int64 `[S]`.
    """
    limit = max_length - 2
    different, places = tf.unique(words)  # each different word is tokenized once
    ids = tokenizer.tokenize(different)[:, :limit]
    is_empty = tf.cast(ids.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(is_empty)], tokenizer.unk_token_id)
    ids = tf.concat([ids, tf.RaggedTensor.from_row_lengths(unknown, is_empty)], axis=1)
    pieces = tf.gather(ids, places)  # [W, (pieces)], at least one and at most `limit`
    ends, examples = _cut(words, pieces.row_splits, row_splits, limit, keeps_empty)  # [S]
    splits = tf.gather(pieces.row_splits, tf.concat([[0], ends], axis=0))
    starts, size = pieces.row_starts()[:, tf.newaxis], tf.shape(pieces.values, tf.int64)
    is_first = tf.scatter_nd(starts, tf.ones_like(places, tf.int32), size)

    def pack(values, first, last):
        rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return packing.pack(rows, None, first, last, None, "longest_first")[0]

    token_ids = pack(pieces.values, tokenizer.cls_token_id, tokenizer.sep_token_id)
    return token_ids, tf.cast(pack(is_first, 0, 0), tf.bool), examples


def _cut(words, piece_splits, row_splits, limit, keeps_empty):
    """Returns the end of each window in words, and its sentence, int64 `[S]`."""
    # A word may be empty, and then it has no last character.
    spaced = tf.strings.join([" ", words])
    last_character = tf.strings.substr(spaced, -1, 1, unit="UTF8_CHAR")
    clause_ends = tf.constant(sorted(CLAUSE_ENDS))
    ends_clause = tf.reduce_any(last_character[:, tf.newaxis] == clause_ends, axis=1)
    breaks = tf.concat([[0], tf.where(ends_clause)[:, 0] + 1], axis=0)  # after these words
    row_ends = row_splits[1:]

    def step(starts, ends, are_windows):
        room = tf.gather(piece_splits, starts) + limit
        fits = tf.searchsorted(piece_splits, room, side="right", out_type=tf.int64) - 1
        fits = tf.minimum(fits, row_ends)
        half = starts + (fits - starts) // 2
        clause = tf.gather(breaks, tf.searchsorted(breaks, fits, side="right") - 1)
        cut = tf.where((fits < row_ends) & (clause > half), clause, fits)
        is_window = starts < row_ends
        if keeps_empty:
            is_window |= tf.shape(are_windows)[1] == 0
        ends = tf.concat([ends, cut[:, tf.newaxis]], axis=1)
        return cut, ends, tf.concat([are_windows, is_window[:, tf.newaxis]], axis=1)

    starts = row_splits[:-1]
    table = tf.TensorShape([None, None])
    none = tf.zeros([tf.size(starts), 0], tf.int64)
    _, ends, are_windows = tf.while_loop(
        lambda starts, ends, _: tf.reduce_any(starts < row_ends) | (tf.shape(ends)[1] == 0),
        step,
        (starts, none, tf.cast(none, tf.bool)),
        shape_invariants=(starts.shape, table, table),
    )
    return tf.boolean_mask(ends, are_windows), tf.where(are_windows)[:, 0]


class WordWindows(RaggedRows):
    """The windows of sentences as rows of tokens.

    Args:
        tokenizer, words, row_splits, max_length: As in `pack_words`.
        has_word_starts: Whether batches have `word_starts` bool `[B, T]`, the first pieces.

    Attributes:
        word_splits, examples: int64, the `row_splits`, and the sentence of each window `[S]`.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = WordWindows(tokenizer, *flat_words([["Ada", "sleeps"]]), max_length=128)
        >>> windows.lengths()
        array([4])
    """

    def __init__(
        self,
        tokenizer,
        words: tf.Tensor,
        row_splits: tf.Tensor,
        max_length: int,
        has_word_starts: bool = False,
    ):
        with tf.device("CPU:0"):
            packed = pack_words(tokenizer, words, row_splits, max_length)
            token_ids, self._word_starts, examples = packed
            segment_ids = tf.zeros_like(token_ids)
        super().__init__(token_ids, segment_ids, tokenizer.pad_token_id)
        self.examples = examples.numpy()
        self.word_splits = row_splits.numpy()
        self._has_word_starts = has_word_starts

    def labels(self, word_labels: np.ndarray) -> tf.RaggedTensor:
        """Returns one label per token, ragged `[S, (T)]`, from one per word, int32 `[W]`."""
        values = np.full(self._token_ids.values.shape[0], IGNORED, np.int32)
        values[self._word_starts.values.numpy()] = word_labels
        return self._token_ids.with_values(tf.constant(values))

    def word_values(self, token_values: np.ndarray) -> np.ndarray:
        """Returns one value per word, `[W, ...]`, from one per token, `[S, T, ...]`."""
        marked = self._word_starts.to_tensor(False).numpy()  # [S, T], T of the longest window
        return token_values[:, : marked.shape[1]][marked]

    def batch(self, rows: tf.Tensor, length: int | None = None) -> dict[str, tf.Tensor]:
        """Returns the token dictionary of the windows `[B]`, padded to `length` or the longest."""
        features = super().batch(rows, length)
        if self._has_word_starts:
            starts = tf.gather(self._word_starts, rows)
            features[WORD_STARTS] = starts.to_tensor(False, shape=[None, length])
        return features


def flat_words(sentences: Sequence[Sequence[str]]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the words of all sentences, strings `[W]`, and their row splits, int64."""
    words = tf.constant([word for sentence in sentences for word in sentence], tf.string)
    lengths = np.array([len(sentence) for sentence in sentences], np.int64)
    return words, tf.constant(np.concatenate([[0], np.cumsum(lengths)]), tf.int64)


def holds_word_lists(x: Any) -> bool:
    """Returns whether `x` is sentences of words: a container of containers, or empty."""
    if (not isinstance(x, Collection) and not hasattr(x, "__array__")) or not is_container(x):
        return False
    rows = plain_rows(x)
    first = next((row for row in rows if not is_missing(row)), [])
    return is_sentence(first)


def is_sentence(row: Any) -> bool:
    """Returns whether `row` is a container, as of words, and no text."""
    return is_container(row) and np.ndim(row[:1] if isinstance(row, (list, tuple)) else row) > 0


def word_lists(sentences: Any, errors: str = "strict") -> list[list[str]]:
    """Sentences as lists of lists of strings, whatever containers they came in.

    Args:
        sentences: A container of containers of words.
        errors: "strict" refuses words that are not valid Unicode, "replace" drops what is not.

    Raises:
        DataError: If a sentence is missing, or a word is not valid Unicode.
        UserError: If a sentence is not a list of strings.
    """
    rows = plain_rows(sentences)
    refuse_missing(rows, "x")
    found = []
    for number, row in enumerate(rows):
        words = list(plain_rows(row)) if is_sentence(row) else [None]
        if not all(map(is_text, words)):
            raise UserError(
                f"Every sentence must be a list of words. Received for sentence {number}: "
                f"{shown(row)}"
            )
        found.append([_checked_word(word, number, errors) for word in words])
    return found


def _checked_word(word, number, errors):
    errors = "ignore" if errors == "replace" else errors
    try:
        word = word.encode("utf-8", errors) if isinstance(word, str) else word
        return word.decode("utf-8", errors)
    except UnicodeError:
        raise DataError(
            f"Words must be valid Unicode, as bytes UTF-8. Received in sentence {number}: {word!r}"
        ) from None
