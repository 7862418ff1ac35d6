"""`SubwordTokenizer`: byte-pair encoding and Unigram models, in the graph."""

import copy
import functools
import os
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.base import hooks
from bert_tf.base.files import staged_files
from bert_tf.base.json_files import write_json
from bert_tf.base.ragged_rows import joined_strings
from bert_tf.errors import naming
from bert_tf.text import subword_definition, subword_files, tokenizer_config, tokenizer_files
from bert_tf.text.byte_pairs import BytePairs, byte_characters
from bert_tf.text.character_pairs import BYTE_PIECES, CharacterPairs
from bert_tf.text.code_points import WORD_START, PieceModel
from bert_tf.text.kept_whole import KeptWhole, literal_patterns
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.text.tokenizer_graphs import TokenizerGraphs, as_strings
from bert_tf.text.trimmed_spans import TrimmedSpans
from bert_tf.text.unicode_tables import begins_unspaced
from bert_tf.text.unigram import METASPACE, Normalized, Unigram, steps


@keras.saving.register_keras_serializable(package="bert_tf")
class SubwordTokenizer(Tokenizer):
    """Converts text to ids with byte pairs or a Unigram model, as Hugging Face does.

    These are the tokenizers of RoBERTa, DeBERTa, ModernBERT and EuroBERT (byte pairs), mmBERT and
    Gemma (pairs of characters with byte fallback), XLM-RoBERTa, CamemBERT, ALBERT, DeBERTa-v2 and
    RemBERT (Unigram, as sentencepiece trains it). It consists of stock TensorFlow ops, so it works
    wherever `BertTokenizer` does.

    Args:
        definition: The path of a Hugging Face `tokenizer.json`, or its content. It says how pairs
            are joined, for example `<s> first </s></s> second </s>`.
        max_length: The length that rows are truncated to, special tokens included, or None.
        truncation_side: See `BertTokenizer`.
        errors: For text that is not UTF-8, "strict" raises an error that names the rows, "replace"
            reads the malformed bytes as U+FFFD.
        split_special_tokens: Whether special tokens in the text, such as `<mask>`, are split.
        unk_token: The piece for text that has no piece. None means the one that the definition
            names, or `<unk>`, `[UNK]` or, as byte pairs have no such text, `pad_token`.
        pad_token: The piece at padded positions. None means `<pad>` or `[PAD]`.
        mask_token: The piece that hides a token. None means `<mask>` or `[MASK]`, if it exists.

    Attributes:
        separators: How many special tokens are between the segments of a pair.
        repeats_cls: Whether the last of them is `cls_token`, as Llama's tokenizer puts it.
        has_segments: Whether the segment ids of the second segment are 1. If not, all are 0.

    Raises:
        DataError: If the definition cannot be read, is inconsistent, or lacks a special token.
        ConfigError: If a part of the definition is not supported, or an option is invalid.

    Example:
        >>> byte_pieces = bert_tf.text.byte_characters()
        >>> pieces = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *byte_pieces, "he", "Ġhe"]
        >>> processor = {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["</s>", 2]}
        >>> merges = ["h e", "Ġ he"]
        >>> vocab = {piece: index for index, piece in enumerate(pieces)}
        >>> tokenizer = bert_tf.text.SubwordTokenizer(
        ...     {
        ...         "model": {"type": "BPE", "vocab": vocab, "merges": merges},
        ...         "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        ...         "post_processor": processor,
        ...     }
        ... )
        >>> tokenizer(["he he"], ["he"], ragged=True)["token_ids"]
        <tf.RaggedTensor [[0, 261, 262, 2, 2, 261, 2]]>

    References: Sennrich et al., arXiv 1508.07909; Kudo, arXiv 1804.10959; huggingface/tokenizers.
    """

    most_unused_ids = 1000  # mDeBERTa-v3 has 898
    arguments = subword_definition.ARGUMENTS

    def __init__(
        self,
        definition: str | os.PathLike | dict[str, Any],
        max_length: int | None = None,
        truncation_side: str = "right",
        errors: str = "strict",
        split_special_tokens: bool = False,
        unk_token: str | None = None,
        pad_token: str | None = None,
        mask_token: str | None = None,
    ):
        with naming(None if isinstance(definition, dict) else definition):
            if not isinstance(definition, dict):
                definition = subword_definition.read(definition)
            parts = subword_definition.parse(definition)
            self.definition = subword_definition.complete(definition, parts.ids)
            options = (max_length, truncation_side, errors, split_special_tokens)
            super().__init__(parts.vocabulary, parts.ids, *options)
            self.separators, self.has_segments = parts.separators, parts.has_segments
            self.repeats_cls = parts.repeats_cls
            self.spans_have_spaces = not parts.is_byte_level
            self._parts = parts

            def existing(*tokens):
                return next((token for token in tokens if token in self._ids), tokens[0])

            self.pad_token = pad_token or existing("<pad>", "[PAD]")
            unknown = (parts.unk_token, "<unk>", "[UNK]", self.pad_token)
            self.unk_token = unk_token or existing(*unknown)
            self.cls_token, self.sep_token = parts.cls_token, parts.sep_token
            mask_token = mask_token or existing("<mask>", "[MASK]")
            self.mask_token = mask_token if mask_token in self._ids else None
            self._set_token_ids("The tokenizer", ("unk_token", "pad_token"))
            self._base_model = self._create_base_model()
            self._graphs = TokenizerGraphs(self._create_model(self._base_model))

    @classmethod
    def from_pretrained(cls, directory: str | os.PathLike, **options) -> "SubwordTokenizer":
        """Creates the tokenizer of a checkpoint directory.

        Args:
            directory: A directory with `tokenizer.json`, or with `vocab.json` and `merges.txt`
                (RoBERTa, DeBERTa), `sentencepiece.bpe.model` (XLM-RoBERTa, CamemBERT),
                `spiece.model` (ALBERT), `spm.model` (DeBERTa-v2 and v3) or `sentencepiece.model`
                (RemBERT), and with `tokenizer_config.json`, which may be missing; or another path
                or a name on the Hugging Face Hub that the `from_pretrained` of a model opens.
            **options: Constructor arguments that override the files.

        Returns:
            The tokenizer.

        Raises:
            DataError: If there is no such file, or it cannot be read.
            ConfigError: If a part of it is not supported, or an option is invalid.
            CheckpointError: If there is no such directory, it cannot be downloaded, or an
                interrupted save in it cannot be undone.
        """
        directory = hooks.tokenizer_directory(directory)
        found = subword_files.read(directory, options.pop("definition", None))
        names = (tokenizer_files.TOKENIZER_FILE, *subword_files.FILES)
        with naming(tokenizer_files.find(directory, names) or directory):
            return cls(**{**found, **options})

    def save_pretrained(self, directory: str | os.PathLike) -> None:
        """Writes `tokenizer.json` and `tokenizer_config.json`, which Hugging Face can read.

        Args:
            directory: The directory, which is created if missing. Its other files are kept.

        Raises:
            CheckpointError: If an interrupted save in the directory cannot be undone.
        """
        with staged_files(directory) as new:
            path = os.path.join(new, tokenizer_files.TOKENIZER_FILE)
            write_json(path, self.definition)
            names = (*subword_definition.OPTIONS, "cls_token", "sep_token")
            arguments = {name: getattr(self, name) for name in names}
            content = tokenizer_config.content(arguments, "PreTrainedTokenizerFast")
            write_json(os.path.join(new, tokenizer_config.CONFIG_FILE), content, sort_keys=True)

    def to_huggingface(self) -> dict[str, Any]:
        """Returns the `tokenizer.json` with which Hugging Face gives the same ids."""
        return self.definition

    def _create_base_model(self) -> PieceModel:
        parts = self._parts
        by_bytes, by_characters = parts.is_byte_level, parts.byte_fallback
        kind = BytePairs if by_bytes else CharacterPairs if by_characters else Unigram
        return kind(parts)

    def _create_model(self, model: PieceModel) -> PieceModel:
        """Returns a model of the definition around what finds the pieces of normalized text."""
        parts, mark = self._parts, WORD_START * model.marks_words
        normalization = steps(self.definition["normalizer"])
        # Some tokens are found before the text is normalized, others after, as in tokenizers.
        for is_normalized in (True, False):
            tokens = [
                token
                for token in parts.added_tokens
                if token["normalized"] is is_normalized
                and not (self.split_special_tokens and token["special"])
            ]
            written = [token["content"] for token in tokens]
            if is_normalized and written:
                written = Normalized(normalization)(written)
            patterns = literal_patterns(
                (text, token["id"] + mark, token["lstrip"], token["rstrip"])
                for text, token in zip(written, tokens)
            )
            if patterns:
                model = KeptWhole(model, patterns)
            if is_normalized and normalization:
                model = Normalized(normalization, model)
        if parts.trim_offsets:
            added = {token["id"] for token in parts.added_tokens}
            options = (byte_characters()[0x20], added, parts.add_prefix_space)
            model = TrimmedSpans(model, self.vocabulary, *options)
        model.errors = self.errors  # the outermost one checks the text
        return model

    @functools.cached_property
    def _word_graphs(self) -> TokenizerGraphs:
        """Graphs whose ids are marked where words begin."""
        marking = copy.copy(self._base_model)
        marking.marks_words = True
        return TokenizerGraphs(self._create_model(marking))

    def words_and_offsets(self, texts, trim_offsets=False):
        texts = as_strings(texts, "texts", ranks=(1,))
        trims = trim_offsets and self.spans_have_spaces
        pieces = self._word_graphs.pieces(texts, trims)
        marked = pieces.ids.values
        ids = pieces.ids.with_values(marked % WORD_START)
        return pieces._replace(ids=ids), marked >= WORD_START

    @functools.cached_property
    def _texts(self) -> list[bytes]:
        """What each piece stands for."""
        if not self._parts.is_byte_level:
            texts = [piece.replace(chr(METASPACE), " ").encode() for piece in self.vocabulary]
            for byte, piece in enumerate(BYTE_PIECES * self._parts.byte_fallback):
                texts[self._ids[piece]] = bytes([byte])
            return texts
        byte_of = {char: byte for byte, char in enumerate(byte_characters())}
        return [
            bytes(byte_of[char] for char in piece)
            if piece in self._parts.model["vocab"] and all(char in byte_of for char in piece)
            else piece.encode()
            for piece in self.vocabulary
        ]

    def readable_pieces(self) -> list[str]:
        texts = [text.decode("utf-8", "backslashreplace") for text in self._texts]
        return [text.replace(" ", chr(METASPACE)) for text in texts]

    def continues_word(self) -> np.ndarray:
        """Returns which pieces do not begin with a space, special tokens excepted, bool `[V]`.

        Punctuation without a space before it continues a word.
        """
        space = byte_characters()[0x20] if self._parts.is_byte_level else chr(METASPACE)
        whole = {token["content"] for token in self._parts.added_tokens} | {self.unk_token}
        return np.array([not (p.startswith(space) or p in whole) for p in self.vocabulary], bool)

    def word_starts(self, ids):
        # A lone space before a character of a script without spaces is a part of its word.
        is_space, begins = (tf.gather(of_pieces, ids) for of_pieces in self._spaces_and_unspaced)
        follows = tf.concat([tf.zeros_like(is_space[..., :1]), is_space[..., :-1]], axis=-1)
        return super().word_starts(ids) | (begins & ~follows)

    @functools.cached_property
    def _spaces_and_unspaced(self) -> np.ndarray:
        """Whether each piece is a space, and whether it begins without one, bool `[2, V]`."""
        return np.array(
            [[text == b" " for text in self._texts], [*map(begins_unspaced, self._texts)]]
        )

    def _added_contents(self) -> set[str]:
        return {token["content"] for token in self._parts.added_tokens}

    def _config_with(self, tokens: list[dict[str, Any]]) -> dict[str, Any]:
        added, count = list(self.definition["added_tokens"]), self.vocab_size
        for token in tokens:
            token_id = self._ids.get(token["content"], count)
            count += token_id == count
            added.append({"id": token_id, **token})
        return {**self.get_config(), "definition": {**self.definition, "added_tokens": added}}

    def _special_ids(self) -> set[int]:
        added = {token["id"] for token in self._parts.added_tokens if token["special"]}
        return super()._special_ids() | added

    def _joined(self, ids: tf.RaggedTensor) -> tf.Tensor:
        texts = joined_strings(ids.with_values(tf.gather(tf.constant(self._texts), ids.values)))
        if self._parts.add_prefix_space and self._parts.merges is None:
            texts = tf.strings.regex_replace(texts, "^ ", "")
        return texts
