"""`BertTokenizer`: converts text to the ids of google-research/bert, in the graph."""

import functools
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.base.ragged_rows import joined_strings
from bert_tf.errors import UserError, check_limits, naming, require
from bert_tf.text import tokenizer_config, tokenizer_files, tokenizer_json
from bert_tf.text.chinese_words import chinese_words
from bert_tf.text.kept_whole import NUMBER, KeptWhole, literal_patterns
from bert_tf.text.tokenizer_base import SPECIAL_TOKENS, Tokenizer
from bert_tf.text.tokenizer_graphs import TokenizerGraphs
from bert_tf.text.unicode_tables import CHARACTER_RULES, GOOGLE
from bert_tf.text.vocabulary import CONTINUATION, check_vocabulary, read_vocabulary
from bert_tf.text.word_splitter import WordSplitter
from bert_tf.text.wordpiece import WordPiece

# google-research/bert tokenization.py: WordpieceTokenizer(max_input_chars_per_word=200).
MAX_INPUT_CHARS_PER_WORD = 200
_OPTIONAL_TOKENS = ("mask_token", "number_token")


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenizer(Tokenizer):
    """Converts text to token ids, segment ids and a padding mask, as google-research/bert does.

    It consists of stock TensorFlow and tensorflow-text ops, so it works eagerly, in `tf.data`, in
    `tf.function`, under a distribution strategy and inside a SavedModel.

    Args:
        vocabulary: The path of a `vocab.txt` or of a Hugging Face `tokenizer.json`, or the pieces
            in the order of their ids.
        lowercase: Whether to lower-case the text. Pass False for cased models.
        strip_accents: Whether to remove accents (NFD, then category Mn). None means the value of
            `lowercase`.
        split_special_tokens: Whether special tokens in the text, such as `[MASK]`, are split, as in
            the original. False keeps them whole, as Hugging Face does.
        split_on_cjk: Whether each CJK ideograph is a separate word.
        max_input_chars_per_word: Longer words become `unk_token`.
        max_length: The length that rows are truncated to, special tokens included, or None.
        number_token: A piece, such as `#NUM#`, that replaces every number: `12`, `1,234.5`, `3rd`,
            `２００`.
        errors: For text that is not UTF-8, "strict" raises an error that names the rows, "replace"
            removes the malformed bytes.
        truncation_side: Where a text that is too long loses tokens: "right", as in the original,
            "left", or "middle", which keeps a quarter of the tokens from the beginning.
        unk_token: The piece for words that cannot be built from the vocabulary.
        sep_token: The piece after each segment.
        pad_token: The piece at padded positions.
        cls_token: The piece at the start of each row.
        mask_token: The piece that hides a token in pre-training. None if there is none.
        separators: How many `sep_token` are between the segments of a pair: 1, or 2 as in MPNet.
        has_segments: Whether the segment ids of the second segment are 1. If not, all are 0. None
            means that they are if `separators` is 1.
        additional_special_tokens: Pieces that are never split in a text, apart from those above.
        character_rules: Which characters are removed, lower-cased, marks, punctuation or
            ideographs: "google" follows google-research/bert, "huggingface" its `tokenizers`, which
            removes private-use characters, knows an earlier Unicode and has no final sigma.
        segmenter: "jieba" makes each Chinese word that is a piece of the vocabulary one token, as
            in RoFormer; it also makes each letter of other scripts than English a word. It is
            Python code, so models with it cannot be exported. It needs the package rjieba or jieba.
        added_tokens: Further tokens, which are found in a text before it is split: see
            `with_added_tokens`. Those that are not in the vocabulary follow it.

    Attributes:
        unk_token_id, sep_token_id, pad_token_id, cls_token_id, mask_token_id: The ids of these
            pieces. `mask_token_id` is None if there is no `mask_token`.

    Raises:
        DataError: If the vocabulary cannot be read, repeats a piece, or lacks a special token.
        ConfigError: If an option has an invalid value.
        UserError: If the package of the `segmenter` is not installed.

    Example:
        >>> vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world", "##s"]
        >>> tokenizer = bert_tf.BertTokenizer(vocabulary)
        >>> tokenizer(["Hello worlds", "hello"])["token_ids"]
        <tf.Tensor: shape=(2, 5), dtype=int32, numpy=
        array([[2, 5, 6, 7, 3],
               [2, 5, 3, 0, 0]], dtype=int32)>
        >>> vocabulary += ["今天", "好"]
        >>> chinese = bert_tf.BertTokenizer(vocabulary, segmenter="jieba")  # doctest: +SKIP
        >>> chinese.tokenize(["今天好"])  # doctest: +SKIP
        <tf.RaggedTensor [[8, 9]]>

    Reference: google-research/bert `tokenization.py`, class `FullTokenizer`.
    """

    arguments = tokenizer_config.ARGUMENTS

    @property
    def most_unused_ids(self) -> int:
        """6 for the pieces of bert-base-uncased: GTE, NomicBERT and jina round their number up."""
        return 6 if self.vocab_size == 30_522 else 0

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
        separators: int = 1,
        has_segments: bool | None = None,
        additional_special_tokens: Sequence[str] = (),
        character_rules: str = GOOGLE,
        segmenter: str | None = None,
        added_tokens: Sequence[Mapping[str, Any]] = (),
    ):
        source = None
        if isinstance(vocabulary, (str, os.PathLike)):
            source, vocabulary = os.fspath(vocabulary), read_vocabulary(vocabulary)
        else:
            vocabulary = list(vocabulary)
            check_vocabulary(vocabulary)
        require(separators in (1, 2), "must be 1 or 2", separators=separators)
        rule = f"must be one of {CHARACTER_RULES}"
        require(character_rules in CHARACTER_RULES, rule, character_rules=character_rules)
        is_valid = segmenter is None or separators == 1
        require(is_valid, "must be 1 with a `segmenter`", separators=separators)
        check_limits(max_input_chars_per_word=max_input_chars_per_word)
        self.added_tokens, self._num_pieces = [], len(vocabulary)
        if len(added_tokens):
            places = {piece: index for index, piece in enumerate(vocabulary)}
            tokens = hooks.checked_added_tokens(added_tokens, False, ())
            self.added_tokens = sorted(tokens, key=lambda token: places.get(token["content"], -1))
            vocabulary = tokenizer_json.with_added(vocabulary, self.added_tokens)
        ids = {piece: index for index, piece in enumerate(vocabulary)}
        options = (max_length, truncation_side, errors, split_special_tokens)
        super().__init__(vocabulary, ids, *options)
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.split_on_cjk = split_on_cjk
        self.max_input_chars_per_word = int(max_input_chars_per_word)
        self.number_token = number_token
        self.unk_token = unk_token
        self.sep_token = sep_token
        self.pad_token = pad_token
        self.cls_token = cls_token
        self.mask_token = mask_token
        self.separators = separators
        self.has_segments = separators == 1 if has_segments is None else has_segments
        self.additional_special_tokens = list(additional_special_tokens)
        self.character_rules = character_rules
        self.segmenter = segmenter
        optional = [name for name in _OPTIONAL_TOKENS if getattr(self, name) is None]
        names = [name for name in (*SPECIAL_TOKENS, "number_token") if name not in optional]
        way_out = ", or mask_token=None if it has no mask token"
        self._set_token_ids(source or "`vocabulary`", names, way_out)
        missing = {*self.additional_special_tokens} - {*ids}
        rule = "must be pieces of the vocabulary"
        require(not missing, rule, additional_special_tokens=sorted(missing))
        self._graphs = self._shared_graphs()

    def _shared_graphs(self) -> TokenizerGraphs:
        kept = [] if self.split_special_tokens else list(SPECIAL_TOKENS)
        tokens = [getattr(self, name) for name in (*kept, "number_token")]
        tokens += self.additional_special_tokens
        tokens = [(t, self.token_to_id(t), False, False) for t in tokens if t is not None]
        literals = {True: [], False: []}  # of added tokens, by `normalized`
        for token in self.added_tokens:
            text, *sides = (token[name] for name in ("content", "lstrip", "rstrip"))
            literals[token["normalized"]].append((text, self.token_to_id(text), *sides))
        patterns = literal_patterns([*tokens, *literals[False]])
        if self.number_token is not None:
            patterns[NUMBER] = self.token_to_id(self.number_token)
        options = self._splitter(), self.unk_token, self.max_input_chars_per_word
        pieces = tuple(self.vocabulary[: self._num_pieces])
        found = tuple(patterns.items()), tuple(literals[True])
        return _graphs_of(*found, pieces, *options)

    def _splitter(self) -> WordSplitter:
        lowercase, strip_accents = self.lowercase, self.strip_accents
        strip_accents = lowercase if strip_accents is None else strip_accents
        options = self.split_on_cjk, self.errors, self.character_rules
        words = chinese_words(self.segmenter, self.vocabulary, self.character_rules)
        return WordSplitter(lowercase, strip_accents, *options, words)

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike, **options) -> "BertTokenizer":
        """Creates the tokenizer of a checkpoint directory.

        Args:
            directory: A directory with `vocab.txt` or `tokenizer.json` and, from Hugging Face,
                `tokenizer_config.json`; or a keras-hub preset; or another path or a name on the
                Hugging Face Hub that the `from_pretrained` of a model opens.
            **options: Constructor arguments that override the files. For a cased TF1 checkpoint,
                pass `lowercase=False`. With `vocabulary`, the directory needs none. `definition`
                is the content of its `tokenizer.json`, if that has been read.

        Returns:
            The tokenizer.

        Raises:
            DataError: If there is no vocabulary, a file of the directory cannot be read, or it has
                added tokens that the vocabulary lacks.
            ConfigError: If the vocabulary is cased and nothing says whether to lower-case text, the
                files are not of a BERT tokenizer or say what is not supported, or an option has an
                invalid value.
            CheckpointError: If there is no such directory, it cannot be downloaded, or an
                interrupted save in it cannot be undone.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("minilm/", max_length=128)
            >>> tokenizer.vocab_size
            30522
        """
        directory = hooks.tokenizer_directory(directory)
        given = options.pop("vocabulary", None), options.pop("definition", None)
        found = tokenizer_files.read(directory, *given)
        lowercase = options.get("lowercase", found.get("lowercase"))
        is_given = "lowercase" in options
        tokenizer_files.check_case(found["vocabulary"], lowercase, is_given, directory)
        with naming(directory):
            return cls(**{**found, **options})

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Writes `vocab.txt` and `tokenizer_config.json`, which Hugging Face can read.

        Args:
            directory: The directory, which is created if missing. Its other files are kept.

        Raises:
            DataError: If a piece contains a line end.
            UserError: If the directory has a `tokenizer.json` with another vocabulary.
            CheckpointError: If an interrupted save in the directory cannot be undone.
        """
        tokenizer_files.write(self.get_config(), directory)

    def to_huggingface(self) -> dict[str, Any]:
        """Returns the `tokenizer.json` with which Hugging Face's `tokenizers` gives the same ids.

        With `character_rules="google"`, a few rare characters give other ids there. Lengths are not
        in it: pass them to `enable_truncation` and `enable_padding`.

        Returns:
            The content of the file.

        Raises:
            UserError: If the tokenizer has a `number_token` or a `segmenter`, which `tokenizers`
                does not have.

        Example:
            >>> tokenizer = bert_tf.BertTokenizer.from_pretrained("reviews/")
            >>> tokenizer.to_huggingface()["model"]["type"]
            'WordPiece'
        """
        for name in ("number_token", "segmenter"):
            rule = "must be None for a `tokenizer.json`, which has no such rule"
            value = getattr(self, name)
            require(value is None, rule, UserError, **{name: value})
        named = [] if self.split_special_tokens else [getattr(self, n) for n in SPECIAL_TOKENS]
        kept = dict.fromkeys([*filter(None, named), *self.additional_special_tokens])
        return tokenizer_json.wordpiece_definition(self.get_config(), self.vocabulary, list(kept))

    def _special_ids(self) -> set[int]:
        special = [token["content"] for token in self.added_tokens if token["special"]]
        special += self.additional_special_tokens
        return super()._special_ids() | {*map(self.token_to_id, special)}

    def _added_contents(self) -> set[str]:
        named = {getattr(self, name) for name in SPECIAL_TOKENS}
        added = {token["content"] for token in self.added_tokens}
        return named | added | {*self.additional_special_tokens}

    def _config_with(self, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        config = self.get_config()
        whole = {t["content"] for t in tokens if tokenizer_json.is_kept_whole(t)} & {*self._ids}
        config["additional_special_tokens"] += sorted(whole, key=self._ids.get)
        config["added_tokens"] += [token for token in tokens if token["content"] not in whole]
        return config

    def _joined(self, ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = tf.gather(tf.constant(self.vocabulary), ids)
        texts = joined_strings(pieces, " ")
        return tf.strings.regex_replace(texts, " " + CONTINUATION, "")

    def as_detokenized(self, text: str) -> str:
        parts = re.split(r"(\s)", text)
        words = self._splitter().ragged_words(tf.constant(parts[::2])).to_list()
        parts[::2] = [b" ".join(of_part).decode() for of_part in words]
        return "".join(parts)

    def continues_word(self) -> np.ndarray:
        """Returns whether each piece of the vocabulary begins with `##`, bool `[V]`."""
        continues = [piece.startswith(CONTINUATION) for piece in self.vocabulary]
        for token in self.added_tokens:
            continues[self.token_to_id(token["content"])] = False
        return np.array(continues, bool)

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor arguments, with the vocabulary as a list."""
        config = super().get_config() | {"vocabulary": self.vocabulary[: self._num_pieces]}
        lists = {name: list(config[name]) for name in ("additional_special_tokens", "added_tokens")}
        return config | lists


@functools.lru_cache(maxsize=8)
def _graphs_of(patterns: tuple, normalized: tuple, vocabulary: tuple[str, ...], *options):
    model = WordPiece(list(vocabulary), *options)
    model = model if model.splitter.words is None and not normalized else model.exact
    if normalized:
        model = hooks.around_added_tokens(model, options[0], normalized)
    return TokenizerGraphs(KeptWhole(model, dict(patterns)) if patterns else model)
