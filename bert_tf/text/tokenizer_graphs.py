"""The traced functions of tokenizers, shared by all tokenizers with the same pieces and options.

Tracing the exact path takes about a second, and notebooks and tests create the same tokenizer many
times.

Glossary: `B` strings, `T` pieces of a string, `R` pieces of all strings.
"""

import functools

import tensorflow as tf

from bert_tf.text.kept_whole import KeptWhole
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import Pieces, WordPiece

# The arguments of `BertTokenizer` that are special tokens.
SPECIAL_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_STRINGS = [tf.TensorSpec([None], tf.string)]


class TokenizerGraphs:
    """Functions from strings `[B]` to ids and pieces, each traced once.

    The arguments are those of `WordPiece` and of `KeptWhole`.
    """

    def __init__(
        self,
        vocabulary: tuple[str, ...],
        splitter: WordSplitter,
        unk_token: str,
        max_input_chars_per_word: int,
        literals: tuple[tuple[str, int], ...],
        number_id: int | None,
    ):
        self._options = (list(vocabulary), splitter, unk_token, max_input_chars_per_word)
        self._kept_whole = KeptWhole(dict(literals), number_id) if literals else None
        self._traced_ids = tf.function(self._ids, input_signature=_STRINGS, autograph=False)
        self._traced_pieces = tf.function(self._pieces, input_signature=_STRINGS, autograph=False)

    def ids(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns the ids of `texts` (strings `[B]`) as ragged int32 `[B, (T)]`."""
        row_splits, ids = self._traced_ids(texts)
        return tf.RaggedTensor.from_row_splits(ids, row_splits, validate=False)

    def pieces(self, texts: tf.Tensor) -> Pieces:
        """Returns the `Pieces` of `texts` (strings `[B]`)."""
        row_splits, *values = self._traced_pieces(texts)
        ragged = tf.RaggedTensor.from_row_splits
        return Pieces(*(ragged(field, row_splits, validate=False) for field in values))

    @functools.cached_property
    def _wordpiece(self) -> WordPiece:
        # Created when it is first used, because importing tensorflow-text is slow.
        return WordPiece(*self._options)

    def _ids(self, texts):
        """Returns the row splits int64 `[B+1]` and the ids int32 `[R]`."""
        kept, wordpiece = self._kept_whole, self._wordpiece
        with tf.device("CPU:0"):
            ids = wordpiece.ids(texts) if kept is None else kept.ids(texts, wordpiece)
            return ids.row_splits, ids.values

    def _pieces(self, texts):
        """Returns the row splits int64 `[B+1]` and the fields of `Pieces`, each `[R]`."""
        kept, wordpiece = self._kept_whole, self._wordpiece
        with tf.device("CPU:0"):
            pieces = wordpiece.pieces(texts) if kept is None else kept.pieces(texts, wordpiece)
            return pieces.ids.row_splits, *(field.values for field in pieces)


_shared = functools.lru_cache(maxsize=8)(TokenizerGraphs)


def shared_graphs(tokenizer) -> TokenizerGraphs:
    """Returns the functions of a `BertTokenizer`."""
    literals = {}
    if not tokenizer.split_special_tokens:
        tokens = (getattr(tokenizer, name) for name in SPECIAL_TOKENS)
        literals = {token: tokenizer.token_to_id(token) for token in tokens if token is not None}
    number_id = None
    if tokenizer.number_token is not None:
        number_id = tokenizer.token_to_id(tokenizer.number_token)
        literals[tokenizer.number_token] = number_id
    lowercase, strip_accents = tokenizer.lowercase, tokenizer.strip_accents
    strip_accents = lowercase if strip_accents is None else strip_accents
    return _shared(
        tuple(tokenizer.vocabulary),
        WordSplitter(lowercase, strip_accents, tokenizer.split_on_cjk, tokenizer.errors),
        tokenizer.unk_token,
        tokenizer.max_input_chars_per_word,
        tuple(literals.items()),
        number_id,
    )
