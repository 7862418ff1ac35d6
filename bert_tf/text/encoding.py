"""`encode`: tokens for own heads, with the word, the span and the text that each comes from.

It computes eagerly and keeps NumPy arrays. Models of this package do not need it: they take texts.

Glossary: `B` rows, `T` tokens of the longest row, `N` tokens of all rows, `W` words of all texts,
`P` pieces of all texts.

Reference: huggingface/tokenizers `tokenizer/encoding.rs`; transformers `BatchEncoding`.
"""

import numbers
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from bert_tf.errors import ConfigError, require, user_error
from bert_tf.text.packing import check_row_options
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.text.tokenizer_graphs import as_strings

PADDING_SIDES = ("right", "left")
# Numbers in place of the ids of `[CLS]` and `[SEP]`, next to the places of pieces.
_CLS, _SEP = -1, -2
# What each column has at a padded position; `[PAD]` has an id of its own.
_PADDING = {
    "segment_ids": 0,
    "special_tokens_mask": True,
    "text_ids": -1,
    "word_ids": -1,
    "char_starts": 0,
    "char_ends": 0,
}
MODEL_INPUTS = ("token_ids", "segment_ids", "padding_mask")


class Encoding:
    """Rows of tokens, and where each token comes from. `encode` makes it.

    `numpy`, `tensors` and `ragged` return all columns by name. At special tokens and padding, ids
    of words and texts are -1, and spans are (0, 0).

    - `token_ids`, `segment_ids`: int32, what a model takes.
    - `padding_mask`: bool, True at tokens; `ragged` has none.
    - `special_tokens_mask`: bool, True at the special tokens that joined the texts and at padding;
      False at a `[MASK]` in a text.
    - `text_ids`: int32, 0 in the first text of a pair, 1 in the second.
    - `word_ids`: int32, the number of the word in its text: of the words that were given, or of
      those that the tokenizer splits a text into.
    - `char_starts`, `char_ends`: int64, the span in code points, in the text or, if words were
      given, in the word. Ends are exclusive.

    Args:
        columns: Values of all tokens, `[N]`, by name.
        row_splits: Where rows begin and end in them, int64 `[B + 1]`.
        examples: The number of the text of each row, int64 `[B]`; a text has one row, or one for
            each window.
        pad_token_id: The id of the padding.
        width: T, at least the longest row.
        padding_side: "right" or "left".
        has_words: Whether spans are those in words.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> encoding = tokenizer.encode(["Hello tokenizers"])
        >>> encoding.char_to_token(0, 8), encoding.token_to_chars(0, 2)
        (2, (6, 11))
    """

    def __init__(
        self,
        columns: dict[str, np.ndarray],
        row_splits: np.ndarray,
        examples: np.ndarray,
        pad_token_id: int,
        width: int,
        padding_side: str = "right",
        has_words: bool = False,
    ):
        self.columns, self.row_splits, self.examples = columns, row_splits, examples
        self.pad_token_id, self.width, self.padding_side = pad_token_id, width, padding_side
        self.has_words = has_words

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.row_splits) - 1

    def __repr__(self):
        return f"<Encoding rows={len(self)}, width={self.width}>"

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row, int64 `[B]`."""
        return np.diff(self.row_splits)

    def numpy(self) -> dict[str, np.ndarray]:
        """Returns all columns, padded, as arrays `[B, T]`."""
        places = np.arange(self.width)
        if self.padding_side == "left":
            places = places[::-1]
        mask = places < self.lengths[:, np.newaxis]  # [B, T]
        dense = {"padding_mask": mask}
        for name, values in self.columns.items():
            padding = _PADDING.get(name, self.pad_token_id)
            dense[name] = np.full(mask.shape, padding, values.dtype)
            dense[name][mask] = values
        return dense

    def tensors(self) -> dict[str, tf.Tensor]:
        """Returns all columns, padded, as tensors `[B, T]`."""
        with tf.device("CPU:0"):
            return {name: tf.constant(values) for name, values in self.numpy().items()}

    def ragged(self) -> dict[str, tf.RaggedTensor]:
        """Returns all columns without padding, ragged `[B, (T)]`."""
        with tf.device("CPU:0"):
            return {
                name: tf.RaggedTensor.from_row_splits(values, self.row_splits, validate=False)
                for name, values in self.columns.items()
            }

    def inputs(self) -> dict[str, tf.Tensor]:
        """Returns the tensors that a backbone takes, `[B, T]`."""
        tensors = self.tensors()
        return {name: tensors[name] for name in MODEL_INPUTS}

    def char_to_token(self, row: int, char: int, text: int = 0) -> int | None:
        """Returns the token of a code point, or None if it has none, such as a space.

        Args:
            row: The number of the row.
            char: The code point, counted from 0 in its text.
            text: 0 for the first text of a pair, 1 for the second.

        Raises:
            ConfigError: If there is no such row, or words were given: use `word_to_tokens`.
        """
        if self.has_words:
            expected = "belong to a text that is one string. Take `word_to_tokens`"
            raise user_error("`char`", expected, "texts that are split into words.", ConfigError)
        starts, ends = self._values("char_starts", row), self._values("char_ends", row)
        is_found = (self._values("text_ids", row) == text) & (starts <= char) & (char < ends)
        found = np.flatnonzero(is_found)
        return self._shift(row) + int(found[0]) if len(found) else None

    def token_to_chars(self, row: int, token: int) -> tuple[int, int] | None:
        """Returns the span of a token in its text, or None for special tokens and padding.

        Raises:
            ConfigError: If there is no such row or token.
        """
        place = self._place(row, token)
        if place is None or self.columns["special_tokens_mask"][place]:
            return None
        return tuple(int(self.columns[name][place]) for name in ("char_starts", "char_ends"))

    def token_to_word(self, row: int, token: int) -> int | None:
        """Returns the number of a token's word, or None for special tokens and padding.

        Raises:
            ConfigError: If there is no such row or token.
        """
        place = self._place(row, token)
        word = -1 if place is None else int(self.columns["word_ids"][place])
        return None if word < 0 else word

    def word_to_tokens(self, row: int, word: int, text: int = 0) -> tuple[int, int] | None:
        """Returns the first token of a word and the one after its last, or None if it has none.

        Raises:
            ConfigError: If there is no such row.
        """
        found = np.flatnonzero(self._is_in_word(row, word, text))
        if not len(found):
            return None
        return self._shift(row) + int(found[0]), self._shift(row) + int(found[-1]) + 1

    def word_to_chars(self, row: int, word: int, text: int = 0) -> tuple[int, int] | None:
        """Returns the span of a word in its text, or None if it has no tokens.

        Raises:
            ConfigError: If there is no such row.
        """
        found = np.flatnonzero(self._is_in_word(row, word, text))
        if not len(found):
            return None
        starts, ends = self._values("char_starts", row), self._values("char_ends", row)
        return int(starts[found[0]]), int(ends[found[-1]])

    def char_to_word(self, row: int, char: int, text: int = 0) -> int | None:
        """Returns the number of the word of a code point, or None; see `char_to_token`."""
        token = self.char_to_token(row, char, text)
        return None if token is None else self.token_to_word(row, token)

    def _is_in_word(self, row: int, word: int, text: int) -> np.ndarray:
        is_word = self._values("word_ids", row) == word
        return is_word & (self._values("text_ids", row) == text)

    def _values(self, name: str, row: int) -> np.ndarray:
        """Returns a column of the tokens of a row."""
        rule = f"must be in [0, {len(self)}), a row of this encoding"
        is_row = isinstance(row, numbers.Integral) and 0 <= row < len(self)
        require(is_row, rule, row=row)
        return self.columns[name][self.row_splits[row] : self.row_splits[row + 1]]

    def _shift(self, row: int) -> int:
        """Returns the column of the first token of a row."""
        return self.width - int(self.lengths[row]) if self.padding_side == "left" else 0

    def _place(self, row: int, token: int) -> int | None:
        """Returns the place of a token in the columns, or None for padding."""
        size = len(self._values("token_ids", row))
        rule = f"must be in [0, {self.width}), a token of a row"
        require(isinstance(token, numbers.Integral) and 0 <= token < self.width, rule, token=token)
        place = token - self._shift(row)
        return int(self.row_splits[row]) + place if 0 <= place < size else None


def encode(
    tokenizer: Tokenizer,
    texts: Sequence,
    pairs: Sequence | None = None,
    max_length: int | None = None,
    padding: str | int = "longest",
    truncation: str = "longest_first",
    is_split_into_words: bool = False,
    window_overlap: int | None = None,
    padding_side: str = "right",
    trim_offsets: bool = False,
) -> Encoding:
    """Converts texts to model inputs, and says where each token comes from, as Hugging Face does.

    Args:
        tokenizer: The tokenizer.
        texts: Strings `[B]`, or one string.
        pairs: The second texts, in the same form.
        max_length: The length that rows are truncated to, or that windows have. None for that of
            the tokenizer.
        padding: "longest" pads to the longest row, an integer to the next multiple of it,
            "max_length" to `max_length`.
        truncation: Which text of a pair is truncated, or cut into windows: see `Tokenizer`.
        is_split_into_words: Whether each text is a list of words, or the only text is one. Words
            are tokenized one by one; `word_ids` are their numbers, and spans begin in each word.
        window_overlap: How many tokens of a window the next one repeats. Every text then has as
            many rows as it needs, instead of being truncated; `examples` is the text of each row.
            None truncates. Hugging Face calls it `stride`.
        padding_side: "right", or "left" for padding before the tokens.
        trim_offsets: See `Tokenizer.tokenize_with_offsets`.

    Returns:
        An `Encoding`.

    Raises:
        ConfigError: If an argument has an invalid value, type or shape, or a window has no room.
        tf.errors.InvalidArgumentError: If text is not UTF-8 (see `errors` of the tokenizer), or the
            text that is not truncated is too long.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/", max_length=5)
        >>> words = [["John", "Smith", "visited", "Kathmandu"]]
        >>> encoding = bert_tf.text.encode(
        ...     tokenizer, words, is_split_into_words=True, window_overlap=1
        ... )
        >>> encoding.numpy()["word_ids"].tolist()
        [[-1, 0, 1, 2, -1], [-1, 2, 3, -1, -1]]
        >>> encoding.examples.tolist()
        [0, 0]

    Reference: transformers `PreTrainedTokenizerFast.__call__`.
    """
    max_length = tokenizer.max_length if max_length is None else max_length
    least = 2 if pairs is None else 2 + tokenizer.separators
    check_row_options(max_length, padding, truncation, least)
    rule = f"must be one of {PADDING_SIDES}"
    require(padding_side in PADDING_SIDES, rule, padding_side=padding_side)
    with tf.device("CPU:0"):
        columns = [texts] if pairs is None else [texts, pairs]
        names = ("texts", "pairs")
        if is_split_into_words:
            parts = [_of_words(tokenizer, *named, trim_offsets) for named in zip(columns, names)]
        else:
            parts = [_of_texts(tokenizer, *named, trim_offsets) for named in zip(columns, names)]
        counts = [len(part["row_splits"]) - 1 for part in parts]
        rule = "must have as many rows as `texts`"
        require(len({*counts}) == 1, rule, pairs=counts[-1], texts=counts[0])
        examples = np.arange(counts[0])
        segments, start = [], 0  # the places of pieces in all parts
        for part in parts:
            places = np.arange(start, start + len(part["token_ids"]))
            segments.append(tf.RaggedTensor.from_row_splits(places, part["row_splits"]))
            start += len(places)
        if window_overlap is not None:
            options = max_length, truncation, window_overlap
            segments, examples = _windows(tokenizer, segments, *options)
        joined = (*segments, None)[:2]
        rows = tokenizer.join_segments(*joined, _CLS, _SEP, max_length, truncation)
    columns, row_splits = _columns(tokenizer, parts, rows)
    width = int(np.diff(row_splits).max(initial=0))
    if padding == "max_length":
        width = max_length
    elif padding != "longest":
        width = -(-width // padding) * padding
    arguments = columns, row_splits, examples, tokenizer.pad_token_id, width
    return Encoding(*arguments, padding_side, is_split_into_words)


def _of_texts(tokenizer, texts, name, trim_offsets) -> dict[str, np.ndarray]:
    """Returns the pieces of strings `[B]`: their columns `[P]`, and `row_splits`."""
    texts = as_strings([texts] if isinstance(texts, (str, bytes)) else texts, name, ranks=(1,))
    pieces, begin_word = tokenizer.words_and_offsets(texts, trim_offsets)
    row_splits = pieces.ids.row_splits.numpy()
    number = np.cumsum(np.concatenate([[0], begin_word.numpy()]))  # of the words before a place
    before = np.repeat(number[row_splits[:-1]], np.diff(row_splits))
    return {"word_ids": number[1:] - before - 1, **_spans(pieces), "row_splits": row_splits}


def _of_words(tokenizer, texts, name, trim_offsets) -> dict[str, np.ndarray]:
    """Returns the pieces of lists of words, as `_of_texts` does."""
    if isinstance(texts, tf.RaggedTensor):
        texts = texts.to_list()
    texts = list(texts) if isinstance(texts, (list, tuple, np.ndarray)) else [texts]
    if texts and all(isinstance(word, (str, bytes)) for word in texts):
        texts = [texts]  # the only one
    for row, words in enumerate(texts):
        is_list = isinstance(words, (list, tuple, np.ndarray))
        if not (is_list and all(isinstance(word, (str, bytes)) for word in words)):
            raise user_error(
                f"`{name}`",
                "be lists of words, one for each text, with `is_split_into_words`",
                f"{words!r:.200} at row {row}.",
                ConfigError,
            )
    words = [word for text in texts for word in text] or tf.constant([], tf.string)
    pieces = tokenizer.tokenize_with_offsets(words, trim_offsets)
    of_words = pieces.ids.row_splits.numpy()
    text_splits = np.cumsum([0, *map(len, texts)])  # in words
    word = np.repeat(np.arange(len(words)), np.diff(of_words))
    row_splits = of_words[text_splits]
    word -= np.repeat(text_splits[:-1], np.diff(row_splits))
    return {"word_ids": word, **_spans(pieces), "row_splits": row_splits}


def _spans(pieces) -> dict[str, np.ndarray]:
    starts, ends = pieces.char_starts.values.numpy(), pieces.char_ends.values.numpy()
    return {"token_ids": pieces.ids.values.numpy(), "char_starts": starts, "char_ends": ends}


def _windows(
    tokenizer: Tokenizer, segments: list, max_length: int | None, truncation: str, overlap: int
) -> tuple[list[tf.RaggedTensor], np.ndarray]:
    """Cuts the segment of each row that `truncation` names into windows.

    Returns the segments of the windows, and the row of each.
    """
    is_size = isinstance(overlap, numbers.Integral) and overlap >= 0
    rule = "must be an integer of at least 0, or None for no windows"
    require(is_size, rule, window_overlap=overlap)
    rule = "must be given with `window_overlap`: a window has this length"
    require(max_length is not None, rule, max_length=max_length)
    side = tokenizer.truncation_side
    rule = "of the tokenizer must be 'right' or 'left' with `window_overlap`"
    require(side in ("right", "left"), rule, truncation_side=side)
    cut, room = 0, max_length - 2
    if len(segments) == 2:
        rule = "must be 'only_first' or 'only_second' with `window_overlap`: one text is cut"
        require(truncation in ("only_first", "only_second"), rule, truncation=truncation)
        cut = int(truncation == "only_second")
        room = room - tokenizer.separators - segments[1 - cut].row_lengths().numpy()
    row_splits = segments[cut].row_splits.numpy()
    lengths = np.diff(row_splits)
    room = np.broadcast_to(room, lengths.shape)
    is_small = np.flatnonzero((lengths > room) & (room <= overlap))
    if len(is_small):
        row = is_small[0]
        raise ConfigError(
            "`max_length` must leave more room for the text than `window_overlap` repeats. "
            f"Received: max_length={max_length}, window_overlap={overlap}, and room for "
            f"{max(room[row], 0)} tokens in row {row}. Raise max_length."
        )
    places, sizes, examples = [], [], []
    for row, (start, length, size) in enumerate(zip(row_splits, lengths, room)):
        for first, end in _ranges(length, size, overlap, side):
            places.append(np.arange(start + first, start + end))
            sizes.append(end - first)
            examples.append(row)
    flat = np.concatenate([np.zeros(0, np.int64), *places])
    windows = tf.gather(segments[cut].values, flat)
    examples = np.array(examples, np.int64)
    segments = [tf.gather(segment, examples) for segment in segments]
    segments[cut] = tf.RaggedTensor.from_row_lengths(windows, np.array(sizes, np.int64))
    return segments, examples


def _ranges(length: int, size: int, overlap: int, side: str) -> list[tuple[int, int]]:
    """Returns the first place of each window and the one after its last.

    The first window is what truncation keeps; the last one may be shorter.

    Example:
        >>> _ranges(5, 3, 1, "right"), _ranges(6, 3, 1, "left")
        ([(0, 3), (2, 5)], [(3, 6), (1, 4), (0, 2)])
    """
    if length <= size:
        return [(0, length)]
    starts = range(0, length - overlap, size - overlap)
    ranges = [(start, min(start + size, length)) for start in starts]
    return ranges if side == "right" else [(length - end, length - start) for start, end in ranges]


def _columns(tokenizer, parts, rows) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Returns the columns of an `Encoding`, and its row splits.

    `rows` are the places of pieces in the parts, and segment ids, both ragged `[B, (T)]`.
    """
    places, row_splits = rows[0].values.numpy(), rows[0].row_splits.numpy()
    is_special = places < 0
    ends = np.where(places == _CLS, tokenizer.cls_token_id, tokenizer.sep_token_id)

    def column(name, special, dtype):
        values = np.concatenate([*(part[name] for part in parts), [0]])
        return np.where(is_special, special, values[places]).astype(dtype)

    first = len(parts[0]["token_ids"])
    columns = {
        "token_ids": column("token_ids", ends, np.int32),
        "segment_ids": rows[1].values.numpy().astype(np.int32),
        "special_tokens_mask": is_special,
        "text_ids": np.where(is_special, -1, places >= first).astype(np.int32),
        "word_ids": column("word_ids", -1, np.int32),
        "char_starts": column("char_starts", 0, np.int64),
        "char_ends": column("char_ends", 0, np.int64),
    }
    return columns, row_splits
