"""Converts text to WordPiece ids in the graph: an exact path for any text, a fast one for most.

tensorflow-text's `FastBertTokenizer` returns the ids of google-research/bert for texts of
`FastCharacters` only. From other strings, the words with other characters are cut out at the spaces
around them, which are always word boundaries. They are tokenized with `WordSplitter` and
`FastWordpieceTokenizer`, the rest with `FastBertTokenizer`, and the pieces are put back in order.
If a batch with such strings has few bytes, `WordSplitter` and `FastWordpieceTokenizer` tokenize all
of it.

Glossary: `B` strings, `S` segments of strings, `W` words, `T` pieces of a string or a word,
`K` code points of all words.

References: google-research/bert `tokenization.py`; Song et al., "Fast WordPiece Tokenization",
arXiv 2012.15524.
"""

import numpy as np
import tensorflow as tf

from bert_tf.text.code_points import PieceModel, PlacedIds, joined_rows, utf8_lengths
from bert_tf.text.fast_characters import ASCII, fast_characters
from bert_tf.text.strings import checked
from bert_tf.text.tensorflow_text import import_tensorflow_text
from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.text.word_splitter import Words, WordSplitter

MAX_UTF8_BYTES = 4
FEW_BYTES = 1000
# A control character, which tokenization removes, so it can mark where to cut.
_CUT = "\x01"


class WordPiece(PieceModel):
    """Converts text to ids; its arguments are those of `BertTokenizer`, and a splitter."""

    def __init__(
        self,
        vocabulary: list[str],
        splitter: WordSplitter,
        unk_token: str,
        max_input_chars_per_word: int,
    ):
        text = import_tensorflow_text()
        self.splitter, self.errors = splitter, splitter.errors
        self.max_input_chars_per_word = max_input_chars_per_word
        # The limit in characters is applied before; this one only has to be large enough.
        self.max_bytes_per_word = MAX_UTF8_BYTES * max_input_chars_per_word
        characters = fast_characters(
            splitter.lowercase, splitter.strip_accents, splitter.split_on_cjk
        )
        if max_input_chars_per_word < MAX_UTF8_BYTES:  # one character may be too long
            characters = characters._replace(any_length=ASCII)
        self._fast_characters = characters
        # Stored as bytes, not tensors: every graph creates its own constants.
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
        is_fast = tf.strings.regex_full_match(texts, f"[{self._fast_characters.any_length}]*")
        few_bytes = tf.reduce_sum(tf.strings.length(texts)) <= FEW_BYTES
        is_fast = tf.cond(
            tf.reduce_all(is_fast) | ~few_bytes,
            lambda: is_fast,
            lambda: is_fast | self._is_short(texts),
        )

        def other_ids():
            # For a short text, cutting takes longer than it saves.
            return tf.cond(
                few_bytes,
                lambda: self._exact_ids(checked(texts, self.errors)),
                lambda: self._mixed_ids(texts, is_fast),
            )

        return tf.cond(tf.reduce_all(is_fast), lambda: self._fast_ids(texts), other_ids)

    def pieces(self, texts: tf.Tensor) -> PlacedIds:
        """Returns the pieces of `texts` (strings `[B]`), always with the exact path."""
        words = self.splitter.split(checked(texts, self.errors))
        sized_words, too_long = self._sized(words)
        tokenizer = self._wordpiece_tokenizer()
        ids, starts, ends = tokenizer.tokenize_with_offsets(sized_words)  # [W, (T)]
        word_of_piece = ids.value_rowids()
        byte_splits = tf.cumsum(utf8_lengths(words.code_points))
        byte_splits = tf.concat([[0], byte_splits], axis=0)  # [K+1]
        word_bytes = tf.gather(byte_splits, words.word_splits)  # [W+1]
        word_start = tf.gather(word_bytes, word_of_piece)
        start = word_start + tf.cast(starts.values, tf.int64)
        end = tf.where(
            tf.gather(too_long, word_of_piece),
            tf.gather(word_bytes, word_of_piece + 1),
            word_start + tf.cast(ends.values, tf.int64),
        )
        # The first and the last code point of each piece.
        first = tf.searchsorted(byte_splits[:-1], start, out_type=tf.int64)
        last = tf.searchsorted(byte_splits[:-1], end, out_type=tf.int64) - 1
        values = ids.values, tf.gather(words.starts, first), tf.gather(words.ends, last)
        parts = (joined_rows(ids.with_values(field), words.row_splits) for field in values)
        return PlacedIds(*parts)

    def _is_short(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns which texts are fast because no word in them can be too long, bool `[B]`."""
        short = tf.strings.length(texts) <= self.max_input_chars_per_word
        return short & tf.strings.regex_full_match(texts, f"[{self._fast_characters.all}]*")

    def _fast_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        text = import_tensorflow_text()
        return text.FastBertTokenizer(
            fast_wordpiece_model_buffer=_as_tensor(self._fast_wordpiece_model),
            fast_bert_normalizer_model_buffer=_as_tensor(self._fast_normalizer_model),
            token_out_type=tf.int32,
        ).tokenize(texts)

    def _exact_ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        words = self.splitter.split(texts)
        ids = self._wordpiece_tokenizer().tokenize(self._sized(words)[0])  # [W, (T)]
        return joined_rows(ids, words.row_splits)

    def _mixed_ids(self, texts: tf.Tensor, is_fast: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of strings of which some are fast and some are not."""
        # Checked before they are cut, so that an error names the row and not the segment.
        others = checked(tf.where(is_fast, "", texts), self.errors)
        others = tf.strings.regex_replace(others, _CUT, "")
        # A word, between spaces, with any other character; adjacent words are matched together.
        fast = self._fast_characters.any_length
        word = f"[^ ]*[^{fast}][^ ]*"
        marked = tf.strings.regex_replace(others, f"{word}(?: {word})*", rf"{_CUT}\0{_CUT}")
        cut = tf.strings.split(marked, _CUT)  # a fast string has one segment
        segments = tf.tensor_scatter_nd_update(
            cut.values,
            tf.boolean_mask(cut.row_splits[:-1], is_fast)[:, tf.newaxis],
            tf.boolean_mask(texts, is_fast),
        )  # [S]
        is_fast = tf.strings.regex_full_match(segments, f"[{fast}]*")
        fast, exact = tf.where(is_fast)[:, 0], tf.where(~is_fast)[:, 0]
        fast_ids = self._fast_ids(tf.gather(segments, fast))
        exact_ids = self._exact_ids(tf.gather(segments, exact))
        order = tf.math.invert_permutation(tf.concat([fast, exact], axis=0))
        ids = tf.gather(tf.concat([fast_ids, exact_ids], axis=0), order)
        return joined_rows(ids, cut.row_splits)

    def _wordpiece_tokenizer(self):
        return import_tensorflow_text().FastWordpieceTokenizer(
            model_buffer=_as_tensor(self._wordpiece_model),
            no_pretokenization=True,
            token_out_type=tf.int32,
        )

    def _sized(self, words: Words) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the words and which are too long, which become words of too many bytes."""
        too_long = words.word_splits[1:] - words.word_splits[:-1] > self.max_input_chars_per_word
        return tf.where(too_long, "a" * (self.max_bytes_per_word + 1), words.words), too_long


def _as_tensor(buffer: bytes) -> tf.Tensor:
    """Returns uint8 `[bytes]`. tensorflow-text itself would take a second, number by number."""
    return tf.constant(np.frombuffer(buffer, np.uint8))
