"""Converts text to WordPiece ids in the graph: an exact path for any text, a fast one for ASCII.

tensorflow-text's `FastBertTokenizer` returns the ids of google-research/bert on printable ASCII,
but other ids elsewhere. It is used for strings of printable ASCII. From other strings, the words
that are not ASCII are cut out at the spaces around them, which are always word boundaries, and it
is used for the rest. The words that were cut out are tokenized with `WordSplitter` and
`FastWordpieceTokenizer`, and the pieces are put back in order. If a batch that is not ASCII has few
bytes, all of it is tokenized with these two.

Glossary: `B` strings, `S` segments of strings, `W` words, `T` pieces of a string or a word,
`K` code points of all words.

References: google-research/bert `tokenization.py`, class `WordpieceTokenizer`; Song et al., "Fast
WordPiece Tokenization", arXiv 2012.15524.
"""

from typing import NamedTuple

import tensorflow as tf

from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.text.word_splitter import Words, WordSplitter

PRINTABLE_ASCII = r"[\t\n\r -~]*"
MAX_UTF8_BYTES = 4
FEW_BYTES = 1000
# A word, between spaces, with any other character; adjacent words are matched together.
_OTHER_WORD = r"[^ ]*[^\t\n\r -~][^ ]*"
_OTHER_WORDS = f"{_OTHER_WORD}(?: {_OTHER_WORD})*"
# A control character. Tokenization removes it, so it can be removed first and then used to mark
# where to cut.
_CUT = "\x01"


class Pieces(NamedTuple):
    """Pieces and their positions in the text, all ragged `[B, (T)]`.

    Attributes:
        ids: The ids, int32.
        byte_starts: The first byte of each piece in its string, int64.
        byte_ends: The byte after the last one, int64.
        char_starts: The first code point of each piece in its string, int64.
        char_ends: The code point after the last one, int64.
    """

    ids: tf.RaggedTensor
    byte_starts: tf.RaggedTensor
    byte_ends: tf.RaggedTensor
    char_starts: tf.RaggedTensor
    char_ends: tf.RaggedTensor


def import_tensorflow_text():
    """Imports tensorflow-text and returns it.

    Raises:
        ImportError: If it is not installed for this TensorFlow. The message says what to install.
    """
    try:
        import tensorflow_text
    except (ImportError, tf.errors.NotFoundError) as error:
        minor = ".".join(tf.__version__.split(".")[:2])
        raise ImportError(
            "Tokenization needs the tensorflow-text of TensorFlow's minor version. "
            f"Received: {error}. Install it with: pip install 'tensorflow-text=={minor}.*'"
        ) from error
    return tensorflow_text


class WordPiece:
    """Converts text to the ids of google-research/bert's `FullTokenizer`.

    The arguments are those of `BertTokenizer`, and the splitter of text into words.
    """

    def __init__(
        self,
        vocabulary: list[str],
        splitter: WordSplitter,
        unk_token: str,
        max_input_chars_per_word: int,
    ):
        text = import_tensorflow_text()
        self.splitter = splitter
        self.max_input_chars_per_word = max_input_chars_per_word
        # The limit in characters is applied before; this one only has to be large enough.
        self.max_bytes_per_word = MAX_UTF8_BYTES * max_input_chars_per_word
        # Stored as bytes, not tensors: every graph creates its own constants, so the tokenizer
        # works in any graph, whichever used it first, and is exported with it.
        self._fast_normalizer_model = text.build_fast_bert_normalizer_model(splitter.lowercase)

        def wordpiece_model(max_bytes_per_word, no_pretokenization):
            # False: not for detokenization.
            return text.build_fast_wordpiece_model(
                vocabulary, max_bytes_per_word, CONTINUATION, unk_token, no_pretokenization, False
            )

        self._fast_wordpiece_model = wordpiece_model(max_input_chars_per_word, False)
        self._wordpiece_model = wordpiece_model(self.max_bytes_per_word, True)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        is_ascii = tf.strings.regex_full_match(texts, PRINTABLE_ASCII)

        def other_ids():
            # For a short text, cutting takes longer than it saves.
            return tf.cond(
                tf.reduce_sum(tf.strings.length(texts)) <= FEW_BYTES,
                lambda: _parts(self._exact_ids(self.splitter.checked(texts))),
                lambda: _parts(self._mixed_ids(texts, is_ascii)),
            )

        splits, values = tf.cond(
            tf.reduce_all(is_ascii), lambda: _parts(self._fast_ids(texts)), other_ids
        )
        return tf.RaggedTensor.from_row_splits(values, splits, validate=False)

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`), always with the exact path."""
        words = self.splitter.split(self.splitter.checked(texts), with_spans=True)
        ids, first, last = self._word_pieces(words)  # [W, (T)]
        row_splits = tf.gather(ids.row_splits, words.row_splits)

        def ragged(values: tf.Tensor) -> tf.RaggedTensor:
            return tf.RaggedTensor.from_row_splits(values, row_splits, validate=False)

        spans = words.spans
        return Pieces(
            ids=ragged(ids.values),
            byte_starts=ragged(tf.gather(spans.byte_starts, first)),
            byte_ends=ragged(tf.gather(spans.byte_ends, last)),
            char_starts=ragged(tf.gather(spans.char_starts, first)),
            char_ends=ragged(tf.gather(spans.char_ends, last)),
        )

    def _fast_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        text = import_tensorflow_text()
        return text.FastBertTokenizer(
            fast_wordpiece_model_buffer=self._fast_wordpiece_model,
            fast_bert_normalizer_model_buffer=self._fast_normalizer_model,
            token_out_type=tf.int32,
        ).tokenize(texts)

    def _exact_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = self.splitter.split(texts)
        ids = self._wordpiece_tokenizer().tokenize(self._sized_words(words))  # [W, (T)]
        return joined_rows(ids, words.row_splits)

    def _mixed_ids(self, texts: tf.Tensor, is_ascii: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of strings of which some are ASCII and some are not."""
        # Checked before they are cut, so that an error names the row and not the segment.
        others = self.splitter.checked(tf.where(is_ascii, "", texts))
        if self.splitter.errors != "strict":  # the pattern does not match malformed bytes
            others = tf.strings.unicode_transcode(others, "UTF-8", "UTF-8", errors="replace")
        others = tf.strings.regex_replace(others, _CUT, "")
        marked = tf.strings.regex_replace(others, _OTHER_WORDS, rf"{_CUT}\0{_CUT}")
        cut = tf.strings.split(marked, _CUT)  # an ASCII string has one segment
        segments = tf.tensor_scatter_nd_update(
            cut.values,
            tf.boolean_mask(cut.row_splits[:-1], is_ascii)[:, tf.newaxis],
            tf.boolean_mask(texts, is_ascii),
        )  # [S]
        is_ascii = tf.strings.regex_full_match(segments, PRINTABLE_ASCII)
        fast, exact = tf.where(is_ascii)[:, 0], tf.where(~is_ascii)[:, 0]
        fast_ids = self._fast_ids(tf.gather(segments, fast))
        exact_ids = self._exact_ids(tf.gather(segments, exact))
        order = tf.math.invert_permutation(tf.concat([fast, exact], axis=0))
        ids = tf.gather(tf.concat([fast_ids, exact_ids], axis=0), order)
        return joined_rows(ids, cut.row_splits)

    def _wordpiece_tokenizer(self):
        return import_tensorflow_text().FastWordpieceTokenizer(
            model_buffer=self._wordpiece_model, no_pretokenization=True, token_out_type=tf.int32
        )

    def _sized_words(self, words: Words) -> tf.Tensor:
        """Returns the words; those of too many characters become one of too many bytes."""
        return tf.where(self._are_too_long(words), "a" * (self.max_bytes_per_word + 1), words.words)

    def _are_too_long(self, words: Words) -> tf.Tensor:
        return words.word_splits[1:] - words.word_splits[:-1] > self.max_input_chars_per_word

    def _word_pieces(self, words: Words):
        """Returns the pieces of each word and the first and last code point of each piece."""
        tokenizer = self._wordpiece_tokenizer()
        ids, starts, ends = tokenizer.tokenize_with_offsets(self._sized_words(words))
        byte_lengths = 1 + tf.add_n(
            [tf.cast(words.code_points >= first, tf.int64) for first in (0x80, 0x800, 0x10000)]
        )
        byte_starts = tf.cumsum(byte_lengths, exclusive=True)  # [K]
        byte_splits = tf.concat([byte_starts, [tf.reduce_sum(byte_lengths)]], axis=0)
        word_of_piece = ids.value_rowids()
        word_start = tf.gather(tf.gather(byte_splits, words.word_splits[:-1]), word_of_piece)
        word_end = tf.gather(tf.gather(byte_splits, words.word_splits[1:]), word_of_piece)
        whole = tf.gather(self._are_too_long(words), word_of_piece)
        start = word_start + tf.cast(starts.values, tf.int64)
        first = tf.searchsorted(byte_starts, start, out_type=tf.int64)
        end = tf.where(whole, word_end, word_start + tf.cast(ends.values, tf.int64))
        last = tf.searchsorted(byte_starts, end, out_type=tf.int64) - 1
        return ids, first, last


def joined_rows(parts: tf.RaggedTensor, row_splits: tf.Tensor) -> tf.RaggedTensor:
    """Joins adjacent rows of `parts`; `row_splits` says which of them become one row."""
    return tf.RaggedTensor.from_row_splits(
        parts.values, tf.gather(parts.row_splits, row_splits), validate=False
    )


def _parts(ragged: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
    return tf.cast(ragged.row_splits, tf.int64), ragged.values
