"""`Tokenizer`: what all tokenizers offer. A subclass says how text becomes ids.

Glossary: `B` texts, `T` length of the longest row, or the ids of one text.
"""

import contextlib
import functools
import inspect
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.base import hints, hooks
from bert_tf.base.json_schema import Kind, check
from bert_tf.base.ragged_rows import kept_values
from bert_tf.errors import ConfigError, DataError, UserError, require, user_error
from bert_tf.text import packing
from bert_tf.text.code_points import Pieces
from bert_tf.text.spacing import without_tokenization_spaces
from bert_tf.text.tokenizer_config import ERRORS
from bert_tf.text.tokenizer_graphs import TextLike, TokenizerGraphs, as_strings, map_strings

# The arguments of `BertTokenizer` that are special tokens.
SPECIAL_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Tokenizer:
    """Converts text to token ids, segment ids and a padding mask.

    Subclasses are `BertTokenizer` and `SubwordTokenizer`; `load_tokenizer` finds the one of a
    directory.

    Attributes:
        vocabulary: The pieces in the order of their ids.
        unk_token_id, sep_token_id, pad_token_id, cls_token_id, mask_token_id: The ids of the
            special pieces. `mask_token_id` is None if there is no mask token.

    Example:
        >>> isinstance(bert_tf.text.load_tokenizer("reviews/"), Tokenizer)
        True
    """

    separators = 1  # special tokens between two segments
    repeats_cls = False  # whether the last of them is `[CLS]`
    most_unused_ids = 0  # by how much a model's word embeddings may exceed the vocabulary
    spans_have_spaces = False  # before their text
    has_segments = True  # whether the segment ids of the second segment are 1
    arguments: Kind  # of the constructor, as files store them
    _graphs: TokenizerGraphs

    def __init__(
        self,
        vocabulary: list[str],
        ids: dict[str, int],
        max_length: int | None,
        truncation_side: str,
        errors: str,
        split_special_tokens: bool,
    ):
        require(errors in ERRORS, f"must be one of {ERRORS}", errors=errors)
        self.vocabulary, self._ids = vocabulary, ids
        self.max_length = max_length
        self.truncation_side = truncation_side
        self.errors, self.split_special_tokens = errors, split_special_tokens

    def __setattr__(self, name, value):
        if name == "max_length":
            packing.check_row_options(value)
            value = value if value is None else int(value)
        elif name == "truncation_side":
            rule = f"must be one of {packing.TRUNCATION_SIDES}"
            require(value in packing.TRUNCATION_SIDES, rule, truncation_side=value)
        elif "_graphs" in vars(self) and name in inspect.signature(type(self)).parameters:
            raise UserError(
                f"`{name}` must be given to the constructor: the functions of a tokenizer are made "
                f"with it. Received: {name}={value!r:.200}. Make another one, for example "
                f"`{type(self).__name__}.from_config(tokenizer.get_config() | {{{name!r}: …}})`."
            )
        super().__setattr__(name, value)

    def __repr__(self):
        values = {"vocab_size": self.vocab_size}
        if hasattr(self, "lowercase"):
            values["cased"] = not self.lowercase
        return hints.describe(self, {**values, "max_length": self.max_length})

    __getattr__ = hints.missing_attribute
    from_preset = classmethod(hints.refuse_from_preset)

    def _set_token_ids(self, where: str, names: Sequence[str], way_out: str = "") -> None:
        """Sets the ids of the special tokens, of which those with these `names` must exist."""
        tokens = {name: getattr(self, name) for name in names}
        missing = [f"{tokens[name]!r} ({name})" for name in names if tokens[name] not in self._ids]
        if missing:
            raise DataError(
                f"{where} must contain every special token. Received: {len(self.vocabulary)} "
                f"pieces without {', '.join(missing)}. Pass the names that the vocabulary uses"
                f"{way_out}."
            )
        for name in SPECIAL_TOKENS:
            setattr(self, f"{name}_id", self._ids.get(getattr(self, name)))

    def __call__(
        self,
        texts: TextLike,
        pairs: TextLike | None = None,
        max_length: int | None = None,
        padding: str | int = "longest",
        truncation: str = "longest_first",
        ragged: bool = False,
        **unknown,
    ) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Converts texts, or pairs of texts, to model inputs.

        Args:
            texts: Strings `[B]`, or one string.
            pairs: The second segments, in the same form as `texts`.
            max_length: The length that rows are truncated to. None for that of the tokenizer.
            padding: "longest" pads to the longest row, an integer to the next multiple of it,
                "max_length" to `max_length`.
            truncation: Which segment of a pair is truncated: "longest_first",
                "longest_first_huggingface", "only_first" or "only_second"; see
                `bert_tf.text.packing.truncated_lengths`.
            ragged: Whether to return ragged rows without padding.

        Returns:
            `token_ids` and `segment_ids`, int32 `[B, T]`, and `padding_mask`, bool `[B, T]`, True
            at tokens; for one string, without `B`. With `ragged`, only `token_ids` and
            `segment_ids`, ragged `[B, (T)]`.

        Raises:
            ConfigError: If an argument has an invalid value, type or shape.
            tf.errors.InvalidArgumentError: If text is not UTF-8 (see `errors`), or the segment that
                is not truncated is too long.
        """
        if unknown:
            hint = hints.hint_for(unknown, inspect.signature(self.__call__).parameters)
            raise TypeError(f"A tokenizer has no argument {', '.join(unknown)}.{hint}")
        max_length = self.max_length if max_length is None else max_length
        least = 2 if pairs is None else 2 + self.separators
        packing.check_row_options(max_length, padding, truncation, least)
        ids = self.cls_token_id, self.sep_token_id, None if ragged else self.pad_token_id
        pair = self.separators, self.has_segments, self.repeats_cls
        form = (*ids, truncation, self.truncation_side, *pair)
        sizes = {} if max_length is None else {"max_length": max_length}
        if padding != "longest" and not ragged:
            name = "length" if padding == "max_length" else "multiple"
            sizes[name] = max_length if padding == "max_length" else int(padding)
        with tf.device("CPU:0"):
            texts = as_strings(texts, "texts", ranks=(0, 1))
            columns = [texts]
            if pairs is not None:
                pairs = as_strings(pairs, "pairs")
                if not pairs.shape.is_compatible_with(texts.shape):
                    received = f"pairs.shape={pairs.shape}, texts.shape={texts.shape}."
                    raise user_error("`pairs`", "have the shape of `texts`", received, ConfigError)
                columns.append(pairs)
            if texts.shape.rank == 1:
                return self._graphs.rows(columns, form, sizes)
            rows = self._graphs.rows([text[tf.newaxis] for text in columns], form, sizes)
            return {name: rows[name][0] for name in rows}

    def kind_of(self, columns: list[tf.Tensor]) -> Hashable:
        """Returns what a graph for these strings `[B]` and others of their kind depends on.

        A kind is for example printable ASCII; it includes what may be set of the tokenizer.
        """
        return self._graphs.for_texts(columns), self.max_length, self.truncation_side

    def assuming(self, kind: Hashable) -> contextlib.AbstractContextManager:
        """Makes graphs that are traced in this context take texts of one kind: see `kind_of`.

        They are smaller and faster than graphs for all texts.
        """
        return self._graphs.assuming(kind[0])

    def tokenize(self, texts: TextLike) -> tf.RaggedTensor:
        """Converts text to ids, without special tokens.

        Args:
            texts: Strings of any shape, also a RaggedTensor.

        Returns:
            int32 ids, in the shape of `texts` with one more, ragged dimension; of one string `[T]`.

        Raises:
            ConfigError: If `texts` are not strings.
            tf.errors.InvalidArgumentError: If text is not UTF-8 (see `errors`).

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.tokenize(["Hello tokenizers"])
            <tf.RaggedTensor [[7592, 19204, 17629, 2015]]>
        """
        with tf.device("CPU:0"):
            return map_strings(self._graphs.ids, texts)

    def join_segments(
        self,
        first: tf.RaggedTensor,
        second: tf.RaggedTensor | None,
        cls_id: int,
        sep_id: int,
        max_length: int | None,
        truncation: str = "longest_first",
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
        """Joins segments of ids, `[B, (ids)]`, as this tokenizer joins the segments of texts.

        The ids may be any numbers, to see where in a row each of them comes from. The arguments and
        the results are those of `bert_tf.text.packing.pack`.
        """
        pair = self.separators, self.has_segments, self.repeats_cls
        form = truncation, self.truncation_side, *pair
        return packing.pack(first, second, cls_id, sep_id, max_length, *form)

    def pieces(self, texts: TextLike) -> tf.RaggedTensor:
        """Converts text to pieces: like `tokenize`, but returns strings.

        Args:
            texts: See `tokenize`.

        Returns:
            The pieces, in the shape that `tokenize` returns.

        Raises:
            ConfigError: If `texts` are not strings.
            tf.errors.InvalidArgumentError: If text is not UTF-8 (see `errors`).

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.pieces(["Hello tokenizers"])
            <tf.RaggedTensor [[b'hello', b'token', b'##izer', b'##s']]>
        """
        with tf.device("CPU:0"):
            return tf.gather(tf.constant(self.vocabulary), self.tokenize(texts))

    def tokenize_with_offsets(
        self, texts: Sequence[str] | tf.Tensor, trim_offsets: bool = False
    ) -> Pieces:
        """Converts text to ids and the position of each piece in the original text.

        Spans include accents that normalization removed. The span of `[UNK]` is its word.

        Args:
            texts: Strings `[B]`.
            trim_offsets: Whether spans exclude white space at their beginning. Hugging Face's spans
                include it for pieces such as `▁film`.

        Returns:
            A `Pieces` tuple of ragged `[B, (T)]`: `ids` int32, and int64 `byte_starts`,
            `byte_ends`, `char_starts`, `char_ends`. Ends are exclusive; characters are code points.

        Raises:
            ConfigError: If `texts` is not a batch of strings.
            tf.errors.InvalidArgumentError: If text is not UTF-8 (see `errors`).

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> pieces = tokenizer.tokenize_with_offsets(["Héllo tokenizers"])
            >>> pieces.char_starts, pieces.char_ends
            (<tf.RaggedTensor [[0, 6, 11, 15]]>, <tf.RaggedTensor [[5, 11, 15, 16]]>)
        """
        with tf.device("CPU:0"):
            texts = as_strings(texts, "texts", ranks=(1,))
            return self._graphs.pieces(texts, trim_offsets and self.spans_have_spaces)

    def words_and_offsets(
        self, texts: Sequence[str] | tf.Tensor, trim_offsets: bool = False
    ) -> tuple[Pieces, tf.Tensor]:
        """Converts text to pieces, and says where words begin.

        A word is what the tokenizer splits text into before it looks for pieces: of a
        `BertTokenizer` each word and each punctuation mark, of byte pairs what their pattern finds.

        Args:
            texts, trim_offsets: See `tokenize_with_offsets`.

        Returns:
            The `Pieces` of `tokenize_with_offsets`, and which of all of them begin a word, bool.

        Raises:
            ConfigError: If `texts` is not a batch of strings.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> pieces, begin_word = tokenizer.words_and_offsets(["Hello tokenizers"])
            >>> begin_word.numpy()
            array([ True,  True, False, False])
        """
        pieces = self.tokenize_with_offsets(texts, trim_offsets)
        return pieces, ~tf.gather(self.continues_word(), pieces.ids.values)

    def encode(self, texts: Sequence, pairs: Sequence | None = None, **options: Any) -> Any:
        """Converts texts to model inputs, and says where each token comes from.

        It is for own heads: special-tokens mask, words, offsets, overlapping windows, texts that
        are split into words. `bert_tf.text.encode` describes the arguments, the result and the
        errors.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.encode(["Hello tokenizers"]).numpy()["word_ids"].tolist()
            [[-1, 0, 1, 1, 1, -1]]
        """
        return hooks.encode_texts(self, texts, pairs, **options)

    def detokenize(
        self,
        ids: tf.Tensor | tf.RaggedTensor | Sequence,
        skip_special_tokens: bool | str = True,
        clean_up_tokenization_spaces: bool = False,
    ) -> tf.Tensor:
        """Converts ids to readable text. What normalization removed is not restored.

        Args:
            ids: Ids `[B, T]`, dense or ragged, or one row `[T]`.
            skip_special_tokens: Whether to omit `[CLS]`, `[SEP]` and `[PAD]`. "all" omits every
                special token, also `[MASK]` and `[UNK]`, as Hugging Face does.
            clean_up_tokenization_spaces: Whether to remove the spaces before English punctuation
                and contractions, as Hugging Face's option of this name does.

        Returns:
            Strings `[B]`, or one string.

        Raises:
            ConfigError: If `skip_special_tokens` has another value.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.detokenize([[101, 7592, 19204, 17629, 2015, 102]]).numpy()
            array([b'hello tokenizers'], dtype=object)
        """
        rule = "must be True, False or 'all'"
        is_known = skip_special_tokens in (True, False, "all")
        require(is_known, rule, skip_special_tokens=skip_special_tokens)
        with tf.device("CPU:0"):
            if not tf.is_tensor(ids):
                ids = tf.ragged.constant(ids, tf.int32)
            ids = tf.cast(ids, tf.int32)
            scalar = ids.shape.rank == 1
            if not isinstance(ids, tf.RaggedTensor):
                ids = tf.RaggedTensor.from_tensor(ids[tf.newaxis] if scalar else ids)
            if skip_special_tokens:
                skipped = {self.cls_token_id, self.sep_token_id, self.pad_token_id}
                if skip_special_tokens == "all":
                    skipped |= self._special_ids()
                kept = tf.ones_like(ids.values, tf.bool)
                for token_id in skipped:
                    kept &= ids.values != token_id
                ids = kept_values(ids, kept)
            texts = self._joined(ids)
            if clean_up_tokenization_spaces:
                texts = without_tokenization_spaces(texts)
            return texts[0] if scalar else texts

    def _special_ids(self) -> set[int]:
        """Returns the ids of all special tokens."""
        ids = {getattr(self, f"{name}_id") for name in SPECIAL_TOKENS}
        return ids - {None}

    def _joined(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Returns the texts, `[B]`, of ids, ragged `[B, (T)]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `_joined`.")

    def as_detokenized(self, text: str) -> str:
        """Returns a text as `detokenize` writes it, even if its words begin or end elsewhere.

        Example:
            >>> bert_tf.BertTokenizer.from_pretrained("minilm/").as_detokenized("Izers.")
            'izers .'
        """
        return text

    def continues_word(self) -> np.ndarray:
        """Returns whether each piece of the vocabulary continues a word, bool `[V]`."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `continues_word`.")

    def word_starts(self, ids: tf.Tensor) -> tf.Tensor:
        """Returns where the words that masking hides as a whole begin, bool of the shape of `ids`.

        A piece begins a word if it does not continue one, see `continues_word`, or if it begins
        with a character of a script without spaces, such as an ideograph.

        Args:
            ids: Ids of pieces in the order of a text, int `[..., T]`.
        """
        return ~tf.gather(self.continues_word(), ids)

    def readable_pieces(self) -> list[str]:
        """Returns the pieces as people read them: bytes as text, a space as `▁`.

        Example:
            >>> bert_tf.BertTokenizer.from_pretrained("minilm/").readable_pieces()[:2]
            ['[PAD]', '[unused0]']
        """
        return list(self.vocabulary)

    @property
    def vocab_size(self) -> int:
        """The number of pieces."""
        return len(self.vocabulary)

    def require_size_of(self, num_words: int) -> None:
        """Raises `UserError` if the vocabulary does not fit `num_words` word embeddings."""
        if not 0 <= num_words - self.vocab_size <= self.most_unused_ids:
            raise UserError(
                f"The vocabulary must have as many entries as the word embeddings: {num_words}. "
                f"Received: {self.vocab_size} entries. "
                "Take the vocabulary that the checkpoint was trained with."
            )

    def token_to_id(self, token: str) -> int:
        """Returns the id of a piece, or that of `unk_token` if it is not in the vocabulary."""
        return self._ids.get(token, self.unk_token_id)

    def require_mask_token(self) -> None:
        """Raises `ConfigError` if the vocabulary has no piece that hides tokens."""
        rule = "of the tokenizer must be the piece that hides tokens"
        require(self.mask_token is not None, rule, mask_token=self.mask_token)

    @functools.cached_property
    def keeping_special_tokens(self) -> "Tokenizer":
        """The tokenizer with the same settings for which a literal `[MASK]` is one token."""
        if not self.split_special_tokens:
            return self
        return self.from_config({**self.get_config(), "split_special_tokens": False})

    def with_added_tokens(
        self, tokens: Sequence[str | Mapping[str, Any]], special: bool = False
    ) -> "Tokenizer":
        """Returns a tokenizer with further tokens, which it finds in a text before it splits it.

        Those that are no pieces get the next ids. Give a model as many word embeddings with
        `bert_tf.adapt.resize_token_embeddings`.

        Args:
            tokens: Texts, or Hugging Face's `AddedToken` as a dictionary: `content`, and the flags
                `special`, `normalized` (whether it is found in the normalized text; by default if
                it is not special), `lstrip` and `rstrip` (whether it takes the spaces around it).
                Tokens that are already added change nothing.
            special: Whether texts are special tokens, which `detokenize` can omit.

        Returns:
            The tokenizer; this one does not change.

        Raises:
            ConfigError: If a token is invalid, or there are too many.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer = tokenizer.with_added_tokens(["covid-19"])
            >>> tokenizer.pieces(["Is COVID-19 over?"])
            <tf.RaggedTensor [[b'is', b'covid-19', b'over', b'?']]>
            >>> tokenizer.vocab_size
            30523

        Reference: transformers `add_tokens`, huggingface/tokenizers `AddedToken`.
        """
        known = self._added_contents()
        tokens = hooks.checked_added_tokens(tokens, special, known)
        return self.from_config(self._config_with(tokens)) if tokens else self

    def _added_contents(self) -> set[str]:
        """Returns the special and the added tokens."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `_added_contents`.")

    def _config_with(self, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        """Returns the result of `get_config` of a tokenizer with further added tokens."""
        raise NotImplementedError(f"{type(self).__name__} must have a method `_config_with`.")

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, without paths."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Tokenizer":
        """Creates a tokenizer from the result of `get_config`.

        A path is refused, because a model file could otherwise make its reader open any file.

        Raises:
            ConfigError: If an argument is invalid.
            DataError: If the pieces are inconsistent or lack a special token.
        """
        check(config, cls.arguments, None, ConfigError)
        return cls(**config)

    def __reduce__(self):
        # A copy is created from the configuration, without the graphs.
        return functools.partial(type(self), **self.get_config()), ()
