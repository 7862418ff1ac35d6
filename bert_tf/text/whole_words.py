"""Finds the pieces of whole words, for whole-word masking.

Glossary: `B` texts, `T` pieces of a text, `R` pieces of all texts.

References: google-research/bert `create_pretraining_data.py`, `--do_whole_word_mask`; Cui et al.,
"Pre-Training with Whole Word Masking for Chinese BERT", arXiv 1906.08101.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from bert_tf.base.optional_packages import require_package
from bert_tf.base.python_functions import numpy_function
from bert_tf.base.ragged_rows import row_ids
from bert_tf.errors import DataError, user_error
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.text.unicode_tables import CJK_BLOCKS

Segmenter = Callable[[str], Sequence[str]]


def whole_word_units(
    tokenizer: Tokenizer, texts: Sequence[str] | tf.Tensor, segmenter: Segmenter | None = None
) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Converts text to ids and, for each id, the number of its word.

    A word is a piece and the `##` pieces after it, such as an English word or one ideograph. In a
    vocabulary with `▁` for spaces, a word begins at a space or at a piece that begins with an
    ideograph, or with a character of another script without spaces. With a segmenter, the
    ideographs of each of its words are one word.

    Args:
        tokenizer: The tokenizer.
        texts: Strings `[B]`.
        segmenter: A Python function that splits a text into words. Joined, they must give the text.
            It works in data pipelines, but not in a SavedModel.

    Returns:
        Ids and units, both ragged int32 `[B, (T)]`. The units of each row start at 0.

    Raises:
        DataError: If the words of the segmenter, joined, are not the text.
        ConfigError: If `texts` is not a batch of strings.

    Example:
        >>> tokenizer = bert_tf.BertTokenizer(".cache/materials/chinese_vocab/vocab.txt")
        >>> ids, units = bert_tf.text.whole_word_units(
        ...     tokenizer, ["我用iPhone手机"], lambda text: ["我", "用", "iPhone", "手机"]
        ... )
        >>> units  # 我 用 iphone 手 机
        <tf.RaggedTensor [[0, 1, 2, 3, 3]]>
    """
    texts = tf.convert_to_tensor(texts)
    pieces = tokenizer.tokenize_with_offsets(texts)
    joins = ~tokenizer.word_starts(pieces.ids.values)
    if segmenter is not None:
        inside = functools.partial(_inside_words, segmenter)
        ranges = [pieces.char_starts.values, pieces.char_ends.values, pieces.ids.row_splits]
        joins |= tf.ensure_shape(numpy_function(inside, [texts, *ranges], tf.bool), [None])
    starts = tf.cast(~joins, tf.int32)
    units = tf.cumsum(starts) - 1
    before = tf.concat([units, [0]], axis=0)
    first = tf.gather(before, pieces.ids.row_starts())
    return pieces.ids, pieces.ids.with_values(
        units - tf.gather(first, row_ids(pieces.ids.row_splits))
    )


def jieba_segmenter() -> Segmenter:
    """Returns `jieba.lcut` as a segmenter.

    Raises:
        UserError: If jieba is not installed.

    Example:
        >>> segmenter = bert_tf.text.jieba_segmenter()  # doctest: +SKIP
        >>> list(segmenter("手机很好"))  # doctest: +SKIP
    """
    return require_package("jieba", "the jieba segmenter").lcut


def _inside_words(segmenter, texts, starts, ends, row_splits) -> np.ndarray:
    """Returns bool `[R]`: whether an ideograph is in the word of the ideograph before it."""
    result = np.zeros(len(starts), bool)
    for row, encoded in enumerate(texts):
        text = encoded.decode("utf-8", "replace")
        words = list(segmenter(text))
        if "".join(words) != text:
            expected = "return words that give the text when they are joined"
            raise user_error("`segmenter`", expected, f"text={text!r}, words={words!r}.", DataError)
        boundaries = set(np.cumsum([0] + [len(word) for word in words]).tolist())
        previous = None
        for index in range(row_splits[row], row_splits[row + 1]):
            char = text[starts[index] : ends[index]][:1]
            ideograph = bool(char) and any(a <= ord(char) <= b for a, b in CJK_BLOCKS)
            if ideograph and previous == starts[index] and starts[index] not in boundaries:
                result[index] = True
            previous = ends[index] if ideograph else None
    return result
