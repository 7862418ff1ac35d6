"""The traced functions of tokenizers, shared by all tokenizers with the same pieces and options.

Tracing the exact path takes about a second, and notebooks and tests create the same tokenizer many
times.

Glossary: `B` strings, `R` pieces of all strings.
"""

import functools

import tensorflow as tf

from bert_tf.text.kept_whole import KeptWhole
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import WordPiece

_STRINGS = [tf.TensorSpec([None], tf.string)]


class TokenizerGraphs:
    """Functions from strings `[B]` to ids and pieces, each traced once.

    The arguments are those of `BertTokenizer`, and these two:

    Args:
        literals: Strings that are kept whole, with their ids.
        number_id: The id of every number. None leaves numbers to the vocabulary.

    Attributes:
        ids: Strings `[B]` -> row splits int64 `[B+1]` and ids int32 `[R]`.
        pieces: Strings `[B]` -> row splits int64 `[B+1]` and the fields of `Pieces`, each `[R]`.
    """

    def __init__(
        self,
        vocabulary: tuple[str, ...],
        lowercase: bool,
        strip_accents: bool,
        split_on_cjk: bool,
        errors: str,
        unk_token: str,
        max_input_chars_per_word: int,
        literals: tuple[tuple[str, int], ...],
        number_id: int | None,
    ):
        splitter = WordSplitter(lowercase, strip_accents, split_on_cjk, errors)
        self._options = (list(vocabulary), splitter, unk_token, max_input_chars_per_word)
        self._kept_whole = KeptWhole(dict(literals), number_id) if literals else None
        self.ids = tf.function(self._ids, input_signature=_STRINGS, autograph=False)
        self.pieces = tf.function(self._pieces, input_signature=_STRINGS, autograph=False)

    @functools.cached_property
    def _wordpiece(self) -> WordPiece:
        # Created when it is first used, because importing tensorflow-text is slow.
        return WordPiece(*self._options)

    def _ids(self, texts):
        kept, wordpiece = self._kept_whole, self._wordpiece
        with tf.device("CPU:0"):
            ids = wordpiece.ids(texts) if kept is None else kept.ids(texts, wordpiece)
            return ids.row_splits, ids.values

    def _pieces(self, texts):
        kept, wordpiece = self._kept_whole, self._wordpiece
        with tf.device("CPU:0"):
            pieces = wordpiece.pieces(texts) if kept is None else kept.pieces(texts, wordpiece)
            return pieces.ids.row_splits, *(field.values for field in pieces)


shared_graphs = functools.lru_cache(maxsize=8)(TokenizerGraphs)
