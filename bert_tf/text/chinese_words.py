"""Words of jieba in normalized text, which is how RoFormer's tokenizer splits it.

A word that is a piece of the vocabulary stays whole, and every other word is split at each
ideograph. jieba keeps runs of English letters and digits together, and makes every other
character outside of its dictionary a word: also each letter of other scripts.

Glossary: `K` normalized code points that are kept, of all strings.

Reference: transformers `models/roformer/tokenization_utils.py`, class `JiebaPreTokenizer`.
"""

import dataclasses
import functools
import importlib
import logging
import re
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from bert_tf.base.optional_packages import require_package
from bert_tf.base.python_functions import numpy_function
from bert_tf.errors import require
from bert_tf.text.unicode_tables import GOOGLE, word_data

SEGMENTERS = ("jieba",)

_logger = logging.getLogger("bert_tf")


@functools.cache
def jieba_cut() -> Callable[[str], list[str]]:
    """Returns the function of rjieba or else of jieba that RoFormer splits a text into words with.

    It knows the words of the dictionary only: there is no hidden Markov model of new words. Both
    packages have the same dictionary and gave the same words of 90,000 texts, but rjieba, which
    transformers takes, was 18 times as fast. Raises `UserError` if neither is installed.
    """
    try:
        return functools.partial(importlib.import_module("rjieba").cut, hmm=False)
    except ImportError:
        jieba = require_package("jieba", "segmenter='jieba'")
        return functools.partial(jieba.lcut, HMM=False)


@dataclasses.dataclass(frozen=True)
class ChineseWords:
    """Finds where the words of jieba begin.

    Args:
        pieces: The words that stay whole. None keeps all of them.
        character_rules: Which characters are ideographs, as in `BertTokenizer`.
    """

    pieces: frozenset[str] | None = None
    character_rules: str = GOOGLE

    def __post_init__(self):
        if self.pieces and not re.search("[\u3400-\u9fff]{2}", "\n".join(self.pieces)):
            _logger.warning(
                "The vocabulary has no Chinese word of two characters, so segmenter='jieba' only "
                "splits texts otherwise. `bert-tf build_vocab --segmenter=jieba` learns words."
            )

    def starts(self, points: tf.Tensor, run_starts: tf.Tensor) -> tf.Tensor:
        """Returns which normalized code points (int32 `[K]`) begin a word, bool `[K]`.

        `run_starts`, bool `[K]`, says which of them are the first after white space or of a string.
        """
        found = numpy_function(self._starts, [points, run_starts], tf.bool, stateful=False)
        return tf.ensure_shape(found, points.shape)

    def _starts(self, points: np.ndarray, run_starts: np.ndarray) -> np.ndarray:
        text = np.insert(points, np.flatnonzero(run_starts), ord("\n")).astype("<i4")
        words = [word for word in jieba_cut()(text.tobytes().decode("utf-32-le")) if word != "\n"]
        lengths = np.array([len(word) for word in words], np.int64)
        starts = np.zeros(len(points), bool)
        starts[np.cumsum(lengths) - lengths] = True
        if self.pieces is not None:
            is_split = np.array([word not in self.pieces for word in words], bool)
            alone = word_data(self.character_rules).properties["ideograph"][points]
            alone &= np.repeat(is_split, lengths)
            starts |= alone
            starts[1:] |= alone[:-1]  # what comes after it
        return starts


def chinese_words(
    segmenter: str | None, pieces: Iterable[str] | None = None, character_rules: str = GOOGLE
) -> ChineseWords | None:
    """Returns the `ChineseWords` of a segmenter, which is None or one of `SEGMENTERS`.

    Raises `ConfigError` if it is another, and `UserError` if its package is not installed.
    """
    require(segmenter in (None, *SEGMENTERS), "must be None or 'jieba'", segmenter=segmenter)
    if segmenter is None:
        return None
    jieba_cut()
    return ChineseWords(None if pieces is None else frozenset(pieces), character_rules)
