"""The traced functions of tokenizers, shared by all tokenizers with the same pieces and options.

Tracing takes about a second, and notebooks and tests create the same tokenizer many times.

Glossary: `B` strings, `T` pieces of a string.
"""

import functools
from collections.abc import Callable

import tensorflow as tf

from bert_tf.text.code_points import Pieces
from bert_tf.text.kept_whole import NUMBER, KeptWhole, literal_patterns
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import WordPiece

# The arguments of `BertTokenizer` that are special tokens.
SPECIAL_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_STRINGS = [tf.TensorSpec([None], tf.string)]


class TokenizerGraphs:
    """Functions from strings `[B]`, each traced once.

    Args:
        create: Creates the model, which has the methods `ids` and `pieces`. It is called when they
            are first used, because importing tensorflow-text is slow.
    """

    def __init__(self, create: Callable):
        self.model = functools.cache(create)

    @tf.function(input_signature=_STRINGS, autograph=False)
    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        with tf.device("CPU:0"):
            return self.model().ids(texts)

    @tf.function(input_signature=_STRINGS, autograph=False)
    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        with tf.device("CPU:0"):
            return self.model().pieces(texts).pieces(texts)


@functools.lru_cache(maxsize=8)
def _shared(patterns: tuple[tuple[str, int], ...], vocabulary: tuple[str, ...], *options):
    def create():
        model = WordPiece(list(vocabulary), *options)
        return KeptWhole(model, dict(patterns)) if patterns else model

    return TokenizerGraphs(create)


def shared_graphs(tokenizer) -> TokenizerGraphs:
    """Returns the functions of a `BertTokenizer`."""
    kept = [] if tokenizer.split_special_tokens else list(SPECIAL_TOKENS)
    tokens = [getattr(tokenizer, name) for name in (*kept, "number_token")]
    tokens += tokenizer.additional_special_tokens
    tokens = [(t, tokenizer.token_to_id(t), False, False) for t in tokens if t is not None]
    patterns = literal_patterns(tokens)
    if tokenizer.number_token is not None:
        patterns[NUMBER] = tokenizer.token_to_id(tokenizer.number_token)
    lowercase, strip_accents = tokenizer.lowercase, tokenizer.strip_accents
    strip_accents = lowercase if strip_accents is None else strip_accents
    splitter = WordSplitter(lowercase, strip_accents, tokenizer.split_on_cjk, tokenizer.errors)
    options = splitter, tokenizer.unk_token, tokenizer.max_input_chars_per_word
    return _shared(tuple(patterns.items()), tuple(tokenizer.vocabulary), *options)
