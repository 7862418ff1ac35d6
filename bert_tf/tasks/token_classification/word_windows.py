"""Texts to words, words to windows of pieces, and values of tokens to words and spans of words.

Only the first piece of a word is labelled and read (Devlin et al. 2019, section 5.3). Windows hold
the words in their order, each once.

Glossary: `S` windows, `W` words of all sentences or texts, `B` rows of a batch or texts, `T` its
longest window, `E` spans.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from bert_tf.base.ragged_rows import kept_values, row_ids
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.columns import is_list, is_text, plain_rows, refuse_missing, shown
from bert_tf.inputs.long_texts import whole_windows
from bert_tf.inputs.token_rows import MarkedRows
from bert_tf.inputs.traced import IDS, PIECES, SPLITS, STRINGS, traced
from bert_tf.tasks.token_classification.tag_schemes import OUTSIDE, are_span_tags, tag_parts
from bert_tf.text import code_points, packing
from bert_tf.text.code_points import TextSlices
from bert_tf.text.word_splitter import WordSplitter

# The feature that marks the first pieces.
WORD_STARTS = "word_starts"
# Words after which a long sentence is cut rather than elsewhere.
CLAUSE_ENDS = frozenset("。！？；…!?;.")
# A word, in RE2, that begins with a character of a script without spaces: those of China, Japan and
# south-eastern Asia, with the punctuation of their width.
_UNSPACED = (
    r"(?s)[\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
    r"\x{3000}-\x{30FF}\x{FF00}-\x{FFEF}].*"
)
_SPACE = "▁"  # the piece of a space, sentencepiece's


def tokenized_once(
    tokenizer, words: tf.Tensor, space_before_all_words: bool
) -> tuple[tf.RaggedTensor, tf.Tensor]:
    """Returns the ids of different words, and which of them each of the words is, int32 `[W]`.

    The tokenizer of a Unigram model puts a space before every word. In scripts without spaces it is
    mostly a piece of its own, which the text does not have. It is left out unless
    `space_before_all_words`.
    """
    different, places = tf.unique(words)
    ids = tokenizer.tokenize(different)
    space = tokenizer.token_to_id(_SPACE)
    if not space_before_all_words and space != tokenizer.unk_token_id:
        is_unspaced = tf.strings.regex_full_match(different, _UNSPACED)
        first = tf.boolean_mask(ids.row_starts(), is_unspaced & (ids.row_lengths() > 1))
        is_space = tf.gather(ids.values, first) == space
        lone = code_points.mask_of(tf.boolean_mask(first, is_space), tf.size(ids.values, tf.int64))
        ids = kept_values(ids, ~lone)
    return ids, places


def pack_words(
    tokenizer,
    words: tf.Tensor,
    row_splits: tf.Tensor,
    ids: tf.RaggedTensor,
    places: tf.Tensor,
    max_length: int,
    keeps_empty: bool = False,
) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.Tensor]:
    """Packs the words of sentences into windows of at most `max_length` tokens.

    A word without pieces (white space, control characters) is `[UNK]`, so that every word has a
    tag; a word longer than a window keeps the pieces that fit. A sentence that does not fit is cut
    after the last word of a clause in the second half of the window, or else where it is full.

    Args:
        tokenizer, words, row_splits: A `BertTokenizer`, and what `flat_strings` returns.
        ids, places: What `tokenized_once` returns.
        max_length: The maximum number of tokens of a window, `[CLS]` and `[SEP]` included.
        keeps_empty: Whether a sentence without words has a window without words, or none.

    Returns:
        The token ids with `[CLS]` and `[SEP]`, ragged int32 `[S, (T)]`; which of them are the first
        pieces of words, ragged bool `[S, (T)]`; the sentence of each window, int64 `[S]`.
    """
    limit = max_length - 2
    values = tf.concat([ids.values, [tokenizer.unk_token_id]], axis=0)
    lengths, unknown = ids.row_lengths(), tf.size(ids.values, tf.int64)
    starts = tf.gather(tf.where(lengths > 0, ids.row_starts(), unknown), places)  # [W]
    lengths = tf.gather(tf.clip_by_value(lengths, 1, limit), places)
    pieces = tf.ragged.range(starts, starts + lengths)
    pieces = pieces.with_values(tf.gather(values, pieces.values))  # [W, (pieces)]
    breaks = _clause_breaks(words)
    ends, examples = whole_windows(pieces.row_splits, row_splits, limit, breaks, keeps_empty)  # [S]
    splits = tf.gather(pieces.row_splits, tf.concat([[0], ends], axis=0))
    starts, size = pieces.row_starts()[:, tf.newaxis], tf.shape(pieces.values, tf.int64)
    is_first = tf.scatter_nd(starts, tf.ones_like(places, tf.int32), size)

    def pack(values, first, last):
        rows = tf.RaggedTensor.from_row_splits(values, splits, validate=False)
        return packing.pack(rows, None, first, last, None, "longest_first")[0]

    token_ids = pack(pieces.values, tokenizer.cls_token_id, tokenizer.sep_token_id)
    return token_ids, tf.cast(pack(is_first, 0, 0), tf.bool), examples


_NUMBERS = tf.TensorSpec([None], tf.int32)
pack_words_eagerly = traced(pack_words, [STRINGS, SPLITS, IDS, _NUMBERS])


def _clause_breaks(words):
    """Returns the words before which a clause begins, int64, ascending from 0."""
    # A word may be empty, and then it has no last character.
    spaced = tf.strings.join([" ", words])
    last_character = tf.strings.substr(spaced, -1, 1, unit="UTF8_CHAR")
    clause_ends = tf.constant(sorted(CLAUSE_ENDS))
    ends_clause = tf.reduce_any(last_character[:, tf.newaxis] == clause_ends, axis=1)
    return tf.concat([[0], tf.where(ends_clause)[:, 0] + 1], axis=0)


class WordWindows(MarkedRows):
    """The windows of sentences as rows of tokens.

    Args:
        tokenizer, words, row_splits, max_length: See `pack_words`.
        has_word_starts: Whether batches have `word_starts` bool `[B, T]`, the first pieces.
        space_before_all_words: See `BertTokenClassifier`.

    Example:
        >>> from bert_tf.inputs.columns import flat_strings
        >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
        >>> words = flat_strings([["Ada", "sleeps"]])
        >>> windows = WordWindows(tokenizer, *words, max_length=128)
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
        space_before_all_words: bool = False,
    ):
        with tf.device("CPU:0"):
            pack = pack_words_eagerly(tokenizer, max_length=max_length)
            tokenized = tokenized_once(tokenizer, words, space_before_all_words)
            token_ids, word_starts, examples = pack(words, row_splits, *tokenized)
            segment_ids = token_ids.with_values(tf.zeros_like(token_ids.values))
        rows = token_ids, segment_ids, tokenizer.pad_token_id
        super().__init__(*rows, word_starts, examples.numpy(), row_splits.numpy())
        if has_word_starts:
            self.features[WORD_STARTS] = self.marks, False


def word_lists(sentences: Any, errors: str = "strict") -> list[list[str]]:
    """Returns sentences as lists of lists of strings, whatever containers they came in.

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
        words = list(plain_rows(row)) if is_list(row) else [None]
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


class WordSpans(NamedTuple):
    """The words of a batch of texts.

    Attributes:
        row_splits: int64 `[B + 1]`, which words belong to which text.
        starts, ends: int64 `[W]`, the first character of each in its text, the one after its last.
        words: string `[W]`.
    """

    row_splits: tf.Tensor
    starts: tf.Tensor
    ends: tf.Tensor
    words: tf.Tensor

    @property
    def texts(self) -> tf.Tensor:
        """int64 `[W]`, the text of each word."""
        return row_ids(self.row_splits)


def words_of_texts(tokenizer, pieces: code_points.Pieces, slices: TextSlices) -> WordSpans:
    """Joins the pieces of texts to words: a piece and those after it that continue its word."""
    continues = tf.constant(tokenizer.continues_word())
    begins = ~tf.gather(continues, pieces.ids.values)
    texts = row_ids(pieces.ids.row_splits)
    begins |= code_points.starts(texts)
    first = tf.where(begins)[:, 0]  # [W], of the pieces
    row_of = tf.gather(texts, first)
    next_first = tf.concat([first, [tf.size(pieces.ids.values, tf.int64)]], axis=0)[1:]
    last = tf.minimum(next_first, tf.gather(pieces.ids.row_splits, row_of + 1)) - 1
    starts = tf.gather(pieces.char_starts.values, first)
    ends = tf.gather(pieces.char_ends.values, last)
    row_splits = tf.searchsorted(first, pieces.ids.row_splits, out_type=tf.int64)
    return WordSpans(row_splits, starts, ends, slices(row_of, starts, ends))


def split_texts(errors: str, texts: tf.Tensor) -> WordSpans:
    """Splits texts `[B]` at white space and punctuation and around ideographs, as BERT does.

    `errors` says what to do with text that is not UTF-8, as in `BertTokenizer`.
    """
    split = WordSplitter(lowercase=False, strip_accents=False).split
    words = split(code_points.checked(texts, errors))
    starts = tf.gather(words.starts, words.characters.row_starts())
    ends = tf.gather(words.ends, words.characters.row_limits() - 1)
    rows = row_ids(words.row_splits)
    return WordSpans(words.row_splits, starts, ends, TextSlices(texts)(rows, starts, ends))


def word_spans(
    labels: list[str], tags: tf.Tensor, texts: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the spans that tags mean, as `spans_of_tags`; where they mean none, every word.

    Which span is open after a word depends on the word's tag alone, so no loop is needed.

    Args:
        labels, tags, texts: The model's labels, and the label and the text of each word, `[W]`.

    Returns:
        The first and the last word of each span, int64 `[E]`, and its label, string `[E]`.
    """
    if not are_span_tags(labels):  # each word is one
        every = tf.range(tf.size(tags, tf.int64))
        return every, every, tf.gather(tf.constant(labels), tags)
    parts = [tag_parts(label) or (OUTSIDE, "") for label in labels]
    names = list(dict.fromkeys(name for _, name in parts))
    name = tf.gather(tf.constant([names.index(name) for _, name in parts]), tags)  # [W]

    def has(prefixes):
        return tf.gather(tf.constant([prefix in prefixes for prefix, _ in parts]), tags)

    follows = has("IE")[1:] & has("BI")[:-1] & (name[1:] == name[:-1])
    follows &= texts[1:] == texts[:-1]  # [W - 1]
    nothing = tf.zeros_like(tags[:1], tf.bool)
    begins = has("BIES") & ~tf.concat([nothing, follows], axis=0)
    ends = has("ES") | has("BI") & ~tf.concat([follows, nothing], axis=0)
    first, last = tf.where(begins)[:, 0], tf.where(ends)[:, 0]
    return first, last, tf.gather(tf.constant(names), tf.gather(name, first))


words_of_texts_eagerly = traced(
    lambda tokenizer, pieces, texts: words_of_texts(tokenizer, pieces, TextSlices(texts)),
    [PIECES, STRINGS],
)
split_texts_eagerly = traced(split_texts, [STRINGS])
word_spans_eagerly = traced(word_spans, [tf.TensorSpec([None], tf.int32), SPLITS])
