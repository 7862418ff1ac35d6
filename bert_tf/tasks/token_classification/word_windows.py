"""Sentences of words to windows of pieces, and what the model says back to a tag a word.

Only the first piece of a word is labelled and read (Devlin et al. 2019, section 5.3). A sentence
that does not fit is cut at word borders, behind the end of a clause where there is one in the
second half of the window. Windows hold the words in their order, each once, so that putting a
sentence together again is counting.

Glossary: `S` windows, `W` words of all sentences, `B` rows of a batch, `T` its longest window.
"""

import copy
from collections.abc import Collection, Iterator, Sequence
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
from bert_tf.text import packing

# The feature that marks the first pieces.
WORD_STARTS = "word_starts"
# Words after which a long sentence is cut rather than elsewhere.
CLAUSE_ENDS = frozenset("。！？；…!?;.")


class WordWindows:
    """The pieces of many sentences, in windows of at most `max_length` tokens.

    A word without pieces (white space, control characters) is `[UNK]`, so that every word has a
    tag; a word longer than a window keeps the pieces that fit.

    Args:
        tokenizer: A `BertTokenizer`.
        sentences: The words of each sentence; a sentence may be empty.
        max_length: Longest window, `[CLS]` and `[SEP]` counted.

    Attributes:
        word_splits: int64 `[sentences + 1]`, which words belong to which sentence.
        examples: int64 `[S]`, the sentence of each window.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> windows = WordWindows(tokenizer, [["Ada", "sleeps"]], max_length=128)
        >>> windows.lengths()
        array([4])

    Raises:
        UserError: If a sentence is not a list of strings.
    """

    def __init__(self, tokenizer, sentences: Sequence[Sequence[str]], max_length: int):
        sentences = word_lists(sentences, tokenizer.errors)
        words = [word for sentence in sentences for word in sentence]
        self.word_splits = _splits([len(sentence) for sentence in sentences])
        self._pad_token_id = tokenizer.pad_token_id
        pieces = _pieces_of_words(tokenizer, words, max_length - 2)  # ragged [W, (pieces)]
        lengths = pieces.row_lengths().numpy()
        breaks = np.array([word[-1:] in CLAUSE_ENDS for word in words], bool)
        ends, self.examples = [0], []
        for number, (start, end) in enumerate(zip(self.word_splits, self.word_splits[1:])):
            cuts = cut_words(lengths[start:end], breaks[start:end], max_length - 2)
            for cut in cuts:
                ends.append(start + cut)
                self.examples.append(number)
        self.examples = np.array(self.examples, np.int64)

        splits = pieces.row_splits.numpy()[np.array(ends)]  # [S + 1], over pieces
        is_first = np.zeros(splits[-1], np.int32)
        is_first[pieces.row_splits.numpy()[:-1]] = 1

        def pack(values, first, last):
            rows = tf.RaggedTensor.from_row_splits(values, splits)
            return packing.pack(rows, None, first, last, None, "longest_first")[0]

        self._token_ids = pack(pieces.values, tokenizer.cls_token_id, tokenizer.sep_token_id)
        self._word_starts = tf.cast(pack(is_first, 0, 0), tf.bool)
        self._is_marked = False

    def __len__(self) -> int:
        return len(self.examples)

    def lengths(self) -> np.ndarray:
        """Returns the number of tokens of every window, int64 `[S]`."""
        return self._token_ids.row_lengths().numpy()

    def labels(self, word_labels: np.ndarray) -> tf.RaggedTensor:
        """A label a word, int32 `[W]`, to one a token: ragged `[S, (T)]`, mostly `IGNORED`."""
        values = np.full(self._token_ids.values.shape[0], IGNORED, np.int32)
        values[self._word_starts.values.numpy()] = word_labels
        return self._token_ids.with_values(tf.constant(values))

    def word_values(self, token_values: np.ndarray) -> np.ndarray:
        """A value a token, `[S, T]`, windows in order, to one a word, `[W]`."""
        marked = self._word_starts.values.numpy()
        rows = self._word_starts.value_rowids().numpy()
        columns = np.arange(len(rows)) - self._word_starts.row_splits.numpy()[rows]
        return token_values[rows[marked], columns[marked]]

    def marked(self) -> "WordWindows":
        """Returns the same windows; batches of them have `word_starts` bool `[B, T]` too."""
        windows = copy.copy(self)
        windows._is_marked = True
        return windows

    def batch(self, rows: tf.Tensor, length: int | None = None) -> dict[str, tf.Tensor]:
        """Returns the token dictionary of the windows `[B]`, padded to `length` or the longest."""
        ids = tf.gather(self._token_ids, rows)  # ragged [B, (T)]
        token_ids = ids.to_tensor(self._pad_token_id, shape=[None, length])
        features = {
            "token_ids": token_ids,
            "segment_ids": tf.zeros_like(token_ids),
            "padding_mask": tf.sequence_mask(ids.row_lengths(), length),
        }
        if not self._is_marked:
            return features
        starts = tf.gather(self._word_starts, rows).to_tensor(False, shape=[None, length])
        return {**features, WORD_STARTS: starts}


def cut_words(lengths: Sequence[int], breaks: Sequence[bool], limit: int) -> Iterator[int]:
    """Where to cut a sentence so that no part has more than `limit` pieces.

    Args:
        lengths: The pieces of each word, each at most `limit`.
        breaks: Whether a clause ends with the word.
        limit: The most pieces of a part.

    Yields:
        The end, exclusive, of each part, in words; the last is the number of words. Nothing for a
        sentence without words.

    Example:
        >>> list(cut_words([1] * 8, [False, False, True] + [False] * 5, limit=5))
        [3, 8]
    """
    sums = np.concatenate([[0], np.cumsum(lengths)])
    start, count = 0, len(lengths)
    while start < count:
        end = int(np.searchsorted(sums, sums[start] + limit, side="right")) - 1
        if end < count:
            half = start + (end - start) // 2
            end = next((place for place in range(end, half, -1) if breaks[place - 1]), end)
        yield end
        start = end


def holds_word_lists(x: Any) -> bool:
    """Whether `x` is sentences of words: a container of containers. An empty one is, too."""
    if (not isinstance(x, Collection) and not hasattr(x, "__array__")) or not is_container(x):
        return False
    rows = plain_rows(x)
    first = next((row for row in rows if not is_missing(row)), [])
    return is_sentence(first)


def is_sentence(row: Any) -> bool:
    """Whether `row` is a container, as of words, and no text."""
    return is_container(row) and np.ndim(row[:1] if isinstance(row, (list, tuple)) else row) > 0


def word_lists(sentences: Any, errors: str = "strict") -> list[list[str]]:
    """Sentences as lists of lists of strings, whatever containers they came in.

    Args:
        sentences: A container of containers of words.
        errors: "strict" refuses words that are not valid Unicode, "replace" drops what is not.

    Raises:
        DataError: If a sentence or a word is missing.
        UserError: If a sentence is not a list of strings.
    """
    rows = plain_rows(sentences)
    refuse_missing(rows, "x")
    for number, row in enumerate(rows):
        words = list(plain_rows(row)) if is_sentence(row) else [None]
        if not all(map(is_text, words)):
            raise UserError(
                f"A list of words was expected for every sentence. Received for sentence {number}: "
                f"{shown(row)}"
            )
    return [
        [_checked_word(word, number, errors) for word in plain_rows(row)]
        for number, row in enumerate(rows)
    ]


def _checked_word(word, number, errors):
    errors = "ignore" if errors == "replace" else errors
    try:
        return (word.encode("utf-8", errors) if isinstance(word, str) else word).decode(
            "utf-8", errors
        )
    except UnicodeError:
        raise DataError(
            f"Words must be valid Unicode, as bytes UTF-8. Received in sentence {number}: {word!r}"
        ) from None


def pieces_of_words(tokenizer, words: tf.Tensor, limit: int) -> tf.RaggedTensor:
    """Ids of each of the words `[W]`, at least one and at most `limit`: ragged int32 `[W, (P)]`."""
    ids = tokenizer.tokenize(words)[:, :limit]
    empty = tf.cast(ids.row_lengths() == 0, tf.int64)
    unknown = tf.fill([tf.reduce_sum(empty)], tokenizer.unk_token_id)
    return tf.concat([ids, tf.RaggedTensor.from_row_lengths(unknown, empty)], axis=1)


def _pieces_of_words(tokenizer, words, limit) -> tf.RaggedTensor:
    """`pieces_of_words`; each different word is tokenized once."""
    unique, places = np.unique(np.array(words, object).astype(str), return_inverse=True)
    ids = pieces_of_words(tokenizer, tf.constant(unique, tf.string), limit)
    return tf.gather(ids, places.reshape(-1).astype(np.int64))


def _splits(lengths) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
