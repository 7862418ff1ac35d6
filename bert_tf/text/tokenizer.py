"""`BertTokenizer`: text to the ids of google-research/bert, in the graph."""

import os
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf.errors import ConfigError, DataError
from bert_tf.json_schema import check
from bert_tf.text import packing, tokenizer_files
from bert_tf.text.tokenizer_graphs import TokenizerGraphs, shared_graphs
from bert_tf.text.vocabulary import CONTINUATION, check_vocabulary, read_vocabulary
from bert_tf.text.wordpiece import Pieces

# google-research/bert tokenization.py: WordpieceTokenizer(max_input_chars_per_word=200).
MAX_INPUT_CHARS_PER_WORD = 200
TextLike = str | Sequence[str] | tf.Tensor | tf.RaggedTensor


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenizer:
    """Text to token ids, segment ids and padding mask, equal to google-research/bert's, id for id.

    Everything is made of stock TensorFlow and tensorflow-text ops, so it works eagerly, in
    `tf.data`, in `tf.function`, under a distribution strategy and inside a SavedModel.

    Args:
        vocabulary: the path of a `vocab.txt` or a Hugging Face `tokenizer.json`, or the pieces in
            the order of their ids.
        lowercase: whether to lower-case; False for the cased models.
        strip_accents: whether to remove accents (NFD, then category Mn); None does what
            `lowercase` says, as the original.
        split_special_tokens: whether `[MASK]` and its like, written in the text, are taken for
            ordinary text, as the original does; False keeps them whole, as Hugging Face does.
        split_on_cjk: whether each CJK ideograph is a word of its own.
        max_input_chars_per_word: longer words become `[UNK]`.
        max_length: the length that rows are truncated to, special tokens counted; None for any.
        number_token: replaces every integer and decimal number of the text by this piece, such as
            `#NUM#`; None leaves numbers alone.
        errors: what to do with text that is not UTF-8: "strict" raises and names the rows,
            "replace" drops the malformed bytes.
        truncation_side: where a text that is too long loses tokens: "right" keeps its beginning,
            as the original, "left" its end, "middle" the first quarter of what fits and the end.
        unk_token: the piece for words that the vocabulary cannot spell.
        sep_token: the piece behind each segment.
        pad_token: the piece at padded positions.
        cls_token: the piece in front.
        mask_token: the piece that hides a token in pre-training; None where there is none.

    Raises:
        DataError: the vocabulary cannot be read, repeats a piece, or lacks a special one.
        ConfigError: an option has no such value.

    Example:
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s"]
        >>> tokenizer = bert_tf.BertTokenizer(vocabulary)
        >>> tokenizer(["Hello worlds", "hello"])["token_ids"]
        <tf.Tensor: shape=(2, 5), dtype=int32, numpy=
        array([[2, 5, 6, 7, 3],
               [2, 5, 3, 0, 0]], dtype=int32)>

    Reference: google-research/bert `tokenization.py`, class `FullTokenizer`.
    """

    def __init__(
        self,
        vocabulary: str | os.PathLike | Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        split_special_tokens: bool = True,
        split_on_cjk: bool = True,
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
        max_length: int | None = None,
        number_token: str | None = None,
        errors: str = "strict",
        truncation_side: str = "right",
        unk_token: str = "[UNK]",
        sep_token: str = "[SEP]",
        pad_token: str = "[PAD]",
        cls_token: str = "[CLS]",
        mask_token: str | None = "[MASK]",
    ):
        source = None
        if isinstance(vocabulary, (str, os.PathLike)):
            source, vocabulary = os.fspath(vocabulary), read_vocabulary(vocabulary)
        else:
            vocabulary = list(vocabulary)
            check_vocabulary(vocabulary)
        if errors not in ("strict", "replace"):
            raise ConfigError(
                f"Expected errors to be 'strict' or 'replace'. Received: errors={errors!r}."
            )
        if truncation_side not in packing.TRUNCATION_SIDES:
            raise ConfigError(
                f"Expected truncation_side to be one of {packing.TRUNCATION_SIDES}. "
                f"Received: truncation_side={truncation_side!r}."
            )
        if max_input_chars_per_word < 1:
            raise ConfigError(
                "Expected max_input_chars_per_word to be at least 1. "
                f"Received: max_input_chars_per_word={max_input_chars_per_word}."
            )
        _check_max_length(max_length, pairs=False)
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_special_tokens = split_special_tokens
        self.split_on_cjk = split_on_cjk
        self.max_input_chars_per_word = max_input_chars_per_word
        self.max_length = max_length
        self.number_token = number_token
        self.errors = errors
        self.truncation_side = truncation_side
        self.unk_token = unk_token
        self.sep_token = sep_token
        self.pad_token = pad_token
        self.cls_token = cls_token
        self.mask_token = mask_token

        self._ids = {piece: index for index, piece in enumerate(vocabulary)}
        needed = {
            "unk_token": unk_token,
            "sep_token": sep_token,
            "pad_token": pad_token,
            "cls_token": cls_token,
            "mask_token": mask_token,
            "number_token": number_token,
        }
        missing = {k: v for k, v in needed.items() if v is not None and v not in self._ids}
        if missing:
            raise DataError(
                f"Expected the vocabulary{f' {source}' if source else ''} to hold every special "
                f"token. Received: {len(vocabulary)} pieces without "
                f"{', '.join(f'{v!r} ({k})' for k, v in missing.items())}. Pass the names that "
                "the vocabulary uses, or mask_token=None where it has no mask."
            )
        self._graphs = self._shared_graphs()

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike, **options) -> "BertTokenizer":
        """Makes the tokenizer of a checkpoint directory.

        Args:
            directory: holds `vocab.txt` or `tokenizer.json`, and `tokenizer_config.json` where it
                came from Hugging Face; keras-hub presets are read too.
            **options: constructor arguments that override what the directory says. A TF1
                checkpoint does not say whether it is cased: pass `lowercase=False` if it is. With
                a `vocabulary` the directory needs none.

        Returns:
            The tokenizer.

        Raises:
            DataError: there is no vocabulary, or a file of the directory cannot be read.
            ConfigError: the vocabulary is cased and neither the directory nor `lowercase` says
                whether text is lowered.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/", max_length=128)
            >>> tokenizer.vocab_size
            30522
        """
        vocabulary = options.pop("vocabulary", None)
        is_given = "lowercase" in options
        options = {**tokenizer_files.read(directory, vocabulary), **options}
        tokenizer_files.check_case(options["vocabulary"], options.get("lowercase"), is_given)
        return cls(**options)

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Writes `vocab.txt` and `tokenizer_config.json`, which Hugging Face reads too.

        Args:
            directory: made where it does not exist; its other files stay.
        """
        tokenizer_files.write(self.get_config(), directory)

    def __call__(
        self,
        texts: TextLike,
        pairs: TextLike | None = None,
        max_length: int | None = None,
        padding: str | int = "longest",
        truncation: str = "longest_first",
        ragged: bool = False,
    ) -> dict[str, tf.Tensor | tf.RaggedTensor]:
        """Turns texts, or pairs of texts, into model inputs.

        Args:
            texts: `[B]` strings, or one string.
            pairs: second segments, like `texts`.
            max_length: rows are truncated to it; None takes the tokenizer's `max_length`.
            padding: "longest" (of the batch), "max_length", or a number: to the next multiple.
            truncation: "longest_first", "only_first" or "only_second".
            ragged: whether to return ragged rows without padding, for the packed path.

        Returns:
            `token_ids` int32 `[B, T]`, `segment_ids` int32 `[B, T]` and `padding_mask` bool
            `[B, T]`, True at tokens; without `B` for one string. With `ragged`, `token_ids` and
            `segment_ids` as RaggedTensors `[B, (T)]`.

        Raises:
            ConfigError: an argument has no such value.
            tf.errors.InvalidArgumentError: text is not UTF-8 (see `errors`), or a segment that
                must stay whole is too long.
        """
        max_length = self.max_length if max_length is None else max_length
        _check_max_length(max_length, pairs is not None)
        if truncation not in packing.TRUNCATIONS:
            raise ConfigError(
                f"Expected truncation to be one of {packing.TRUNCATIONS}. "
                f"Received: truncation={truncation!r}."
            )
        multiple = padding if isinstance(padding, int) else 1
        if (
            multiple < 1
            or (isinstance(padding, (str, bool)) and padding not in ("longest", "max_length"))
            or (padding == "max_length" and max_length is None)
        ):
            raise ConfigError(
                "Expected padding to be 'longest', a multiple of at least 1, or 'max_length' with "
                f"a max_length. Received: padding={padding!r}, max_length={max_length}."
            )
        with tf.device("CPU:0"):
            texts = _as_strings(texts, "texts")
            scalar = texts.shape.rank == 0
            if texts.shape.rank not in (0, 1):
                raise ConfigError(
                    "Expected texts to be one string or a batch [B] of strings. "
                    f"Received: texts of shape {texts.shape}."
                )
            second = None
            if pairs is not None:
                pairs = _as_strings(pairs, "pairs")
                if not pairs.shape.is_compatible_with(texts.shape):
                    raise ConfigError(
                        "Expected as many pairs as texts. Received: texts of shape "
                        f"{texts.shape}, pairs of shape {pairs.shape}."
                    )
                second = self.tokenize(tf.reshape(pairs, [-1]))
            first = self.tokenize(tf.reshape(texts, [-1]))
            length = max_length if padding == "max_length" else None
            if second is None and not ragged and self.truncation_side == "right":
                outputs = packing.pack_and_pad(
                    first,
                    self.cls_token_id,
                    self.sep_token_id,
                    self.pad_token_id,
                    max_length,
                    length,
                    multiple,
                )
            else:
                outputs = packing.pack(
                    first,
                    second,
                    self.cls_token_id,
                    self.sep_token_id,
                    max_length,
                    truncation,
                    self.truncation_side,
                )
                outputs = (
                    dict(zip(("token_ids", "segment_ids"), outputs))
                    if ragged
                    else (packing.pad(*outputs, self.pad_token_id, length, multiple))
                )
            return {name: value[0] for name, value in outputs.items()} if scalar else outputs

    def tokenize(self, texts: TextLike) -> tf.RaggedTensor:
        """Text to ids, without special tokens.

        Args:
            texts: strings of any shape, ragged too; words that are already split stay apart.

        Returns:
            int32 ids of the shape of `texts` and one ragged dimension more; a plain Tensor for one
            string.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.tokenize(["Hello tokenizers"])
            <tf.RaggedTensor [[7592, 19204, 17629, 2015]]>
        """
        with tf.device("CPU:0"):

            def flat(strings: tf.Tensor) -> tf.RaggedTensor:
                splits, ids = self._graphs.ids(strings)
                return tf.RaggedTensor.from_row_splits(ids, splits, validate=False)

            return _map_strings(flat, texts)

    def pieces(self, texts: TextLike) -> tf.RaggedTensor:
        """Like `tokenize`, but the pieces themselves, as strings.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.pieces(["Hello tokenizers"])
            <tf.RaggedTensor [[b'hello', b'token', b'##izer', b'##s']]>
        """
        with tf.device("CPU:0"):
            ids = self.tokenize(texts)
            if isinstance(ids, tf.RaggedTensor):
                return ids.with_flat_values(tf.gather(self._piece_table(), ids.flat_values))
            return tf.gather(self._piece_table(), ids)

    def tokenize_with_offsets(self, texts: Sequence[str] | tf.Tensor) -> Pieces:
        """Text to ids and where each piece stands in the text as it was given.

        A span includes the accents that normalisation removed; the span of `[UNK]` is its word.

        Args:
            texts: `[B]` strings.

        Returns:
            A `Pieces` tuple of ragged `[B, (P)]`: `ids` int32, and int64 `byte_starts`,
            `byte_ends`, `char_starts`, `char_ends`; ends are exclusive, characters code points.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> pieces = tokenizer.tokenize_with_offsets(["Héllo tokenizers"])
            >>> pieces.char_starts, pieces.char_ends
            (<tf.RaggedTensor [[0, 6, 11, 15]]>, <tf.RaggedTensor [[5, 11, 15, 16]]>)
        """
        with tf.device("CPU:0"):
            texts = _as_strings(texts, "texts")
            if texts.shape.rank != 1:
                raise ConfigError(
                    "Expected texts to be a batch [B] of strings. "
                    f"Received: texts of shape {texts.shape}."
                )
            row_splits, *values = self._graphs.pieces(texts)
            return Pieces(
                *(tf.RaggedTensor.from_row_splits(v, row_splits, validate=False) for v in values)
            )

    def detokenize(
        self, ids: tf.Tensor | tf.RaggedTensor | Sequence, skip_special_tokens: bool = True
    ) -> tf.Tensor:
        """Ids to readable text; what normalisation removed stays removed.

        Args:
            ids: ids `[B, T]`, dense or ragged, or one row.
            skip_special_tokens: whether to leave out `[CLS]`, `[SEP]` and `[PAD]`.

        Returns:
            Strings `[B]`, or one string.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/")
            >>> tokenizer.detokenize([[101, 7592, 19204, 17629, 2015, 102]]).numpy()
            array([b'hello tokenizers'], dtype=object)
        """
        with tf.device("CPU:0"):
            if not tf.is_tensor(ids):
                ids = tf.ragged.constant(ids, tf.int32)
            ids = tf.cast(ids, tf.int32)
            scalar = ids.shape.rank == 1
            if not isinstance(ids, tf.RaggedTensor):
                ids = tf.RaggedTensor.from_tensor(ids[tf.newaxis] if scalar else ids)
            if skip_special_tokens:
                kept = tf.ones_like(ids.values, tf.bool)
                for token_id in (self.cls_token_id, self.sep_token_id, self.pad_token_id):
                    kept &= ids.values != token_id
                ids = tf.ragged.boolean_mask(ids, ids.with_values(kept))
            pieces = ids.with_values(tf.gather(self._piece_table(), ids.values))
            texts = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
            texts = tf.strings.regex_replace(texts, " " + CONTINUATION, "")
            return texts[0] if scalar else texts

    @property
    def vocab_size(self) -> int:
        """The number of pieces."""
        return len(self.vocabulary)

    @property
    def unk_token_id(self) -> int:
        """The id of `unk_token`."""
        return self._ids[self.unk_token]

    @property
    def sep_token_id(self) -> int:
        """The id of `sep_token`."""
        return self._ids[self.sep_token]

    @property
    def pad_token_id(self) -> int:
        """The id of `pad_token`."""
        return self._ids[self.pad_token]

    @property
    def cls_token_id(self) -> int:
        """The id of `cls_token`."""
        return self._ids[self.cls_token]

    @property
    def mask_token_id(self) -> int | None:
        """The id of `mask_token`, or None where there is none."""
        return None if self.mask_token is None else self._ids[self.mask_token]

    def token_to_id(self, token: str) -> int:
        """The id of a piece, or that of `unk_token` where the vocabulary lacks it."""
        return self._ids.get(token, self.unk_token_id)

    def get_config(self) -> dict[str, Any]:
        """The constructor arguments, the vocabulary as a list."""
        return {
            "vocabulary": list(self.vocabulary),
            "lowercase": self.lowercase,
            "strip_accents": self.strip_accents,
            "split_special_tokens": self.split_special_tokens,
            "split_on_cjk": self.split_on_cjk,
            "max_input_chars_per_word": self.max_input_chars_per_word,
            "max_length": self.max_length,
            "number_token": self.number_token,
            "errors": self.errors,
            "truncation_side": self.truncation_side,
            "unk_token": self.unk_token,
            "sep_token": self.sep_token,
            "pad_token": self.pad_token,
            "cls_token": self.cls_token,
            "mask_token": self.mask_token,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "BertTokenizer":
        """Makes a tokenizer from what `get_config` returned.

        The pieces must be in it: a model file with a path in their place would make its reader
        open any file.

        Raises:
            ConfigError: `vocabulary` is no list of strings, or an option has no such value.
            DataError: the vocabulary repeats a piece or lacks a special one.
        """
        check(config, tokenizer_files.PIECES, None, ConfigError)
        return cls(**config)

    def __reduce__(self):
        # A copy, or one in another process, makes graphs of its own.
        return type(self).from_config, (self.get_config(),)

    def _shared_graphs(self) -> TokenizerGraphs:
        specials = (self.unk_token, self.sep_token, self.pad_token, self.cls_token, self.mask_token)
        literals = (
            {}
            if self.split_special_tokens
            else {token: self._ids[token] for token in specials if token is not None}
        )
        number_id = None
        if self.number_token is not None:
            number_id = literals[self.number_token] = self._ids[self.number_token]
        return shared_graphs(
            tuple(self.vocabulary),
            self.lowercase,
            self.lowercase if self.strip_accents is None else self.strip_accents,
            self.split_on_cjk,
            self.errors,
            self.unk_token,
            self.max_input_chars_per_word,
            tuple(literals.items()),
            number_id,
        )

    def _piece_table(self) -> tf.Tensor:
        return tf.constant(self.vocabulary, tf.string)  # [V]


def _check_max_length(max_length: int | None, pairs: bool) -> None:
    least = 3 if pairs else 2  # the special tokens
    if max_length is not None and max_length < least:
        raise ConfigError(
            f"Expected max_length to be at least {least}, for the special tokens. "
            f"Received: max_length={max_length}."
        )


def _as_strings(texts: TextLike, name: str) -> tf.Tensor | tf.RaggedTensor:
    if isinstance(texts, tf.RaggedTensor):
        strings = texts
    elif isinstance(texts, (list, tuple)) and not texts:
        strings = tf.zeros([0], tf.string)
    else:
        strings = tf.convert_to_tensor(texts)
    if strings.dtype != tf.string:
        raise ConfigError(f"Expected {name} to be strings. Received: dtype {strings.dtype.name}.")
    return strings


def _map_strings(function, texts: TextLike) -> tf.RaggedTensor | tf.Tensor:
    """Applies a function on `[B]` strings to strings of any shape."""
    texts = _as_strings(texts, "texts")
    if isinstance(texts, tf.RaggedTensor):
        return texts.with_flat_values(function(texts.flat_values))
    rank = texts.shape.rank
    if rank == 0:
        return function(texts[tf.newaxis])[0]
    if rank == 1:
        return function(texts)
    ragged = tf.RaggedTensor.from_tensor(texts, ragged_rank=rank - 1)
    return ragged.with_flat_values(function(ragged.flat_values))
