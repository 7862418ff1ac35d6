"""Reads static embeddings: those of model2vec, and `StaticEmbedding` of sentence-transformers.

Token t has the vector `weights[t] * embeddings[mapping[t]]`, where `weights` `[V]` and `mapping`
`[V]` may be missing. The encoder has these vectors as its word embeddings. Texts are pooled without
the tokens that the tokenizer puts around them; model2vec also leaves out the unknown token.

Sources: model2vec 0.10, `model.py` and `persistence.py`; sentence-transformers 6.2,
`StaticEmbedding`.

Glossary: `V` tokens, `C` rows of the table, `D` size of a vector.
"""

import dataclasses

import numpy as np

from bert_tf.base.file_errors import file_error, tensor_error
from bert_tf.base.json_schema import (
    Kind,
    check,
    either,
    integer,
    list_of,
    mapping_of,
    object_of,
    optional,
)
from bert_tf.base.tensor_source import TensorSource, read_floats
from bert_tf.config import BertConfig
from bert_tf.errors import DataError
from bert_tf.text import subword_files
from bert_tf.text.loading import find_tokenizer, load_tokenizer
from bert_tf.text.subword_definition import is_subword
from bert_tf.text.tokenizer_base import Tokenizer
from bert_tf.text.tokenizer_json import PIECE

MODEL_TYPE, MODULE = "model2vec", "StaticEmbedding"
_TABLES = ("embeddings", "embedding.weight")  # of model2vec and of sentence-transformers
_OURS = "embeddings.word_embeddings.weight"
_MOST_TOKENS = 1000  # for each row, so that a small file does not need much memory
# The tokens that are put around a text, the first of them that the tokenizer has.
_ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"), ("[PAD]", "[PAD]"), ("<pad>", "<pad>"))
_SCORED = Kind(
    "a piece and its score",
    lambda value: isinstance(value, list) and len(value) == 2 and PIECE.fits(value[0]),
)
_TOKEN = object_of({"content": PIECE, "id": integer()})
_DEFINITION = object_of(
    {
        "model": object_of({"vocab": either(mapping_of(integer()), list_of(_SCORED))}),
        "added_tokens": optional(list_of(_TOKEN)),
        "truncation": optional(object_of({"max_length": optional(integer())})),
    }
)


class TokenVectors:
    """The vectors of tokens in a file as a table of word embeddings. A `TensorSource`.

    Raises:
        CheckpointError: If the file has no table, or a tensor has another shape.
    """

    format = "huggingface"

    def __init__(self, source: TensorSource):
        self.path, self._source = source.path, source
        self._table = next((name for name in _TABLES if name in source.shapes), None)
        if self._table is None:
            expected = f"hold static embeddings, {' or '.join(_TABLES)}"
            raise file_error(self.path, expected, f"tensors={sorted(source.shapes)[:20]}")
        shape = source.shapes[self._table]
        if len(shape) != 2 or 0 in shape:
            raise tensor_error(source, self._table, "be [tokens, dimensions]", f"shape={shape}")
        per_token = {name: source.shapes.get(name) for name in ("mapping", "weights")}
        sizes = per_token["mapping"] or per_token["weights"] or shape[:1]
        for name, found in per_token.items():
            if found is not None and found != sizes[:1]:
                raise tensor_error(source, name, f"have shape {sizes[:1]}", f"shape={found}")
        if per_token["mapping"] is None and sizes != shape[:1]:
            expected = f"have {shape[0]} values, one for each token"
            raise tensor_error(source, "weights", expected, f"shape={sizes}")
        if not 0 < sizes[0] <= _MOST_TOKENS * shape[0]:
            expected = f"have 1 to {_MOST_TOKENS} tokens for each of {shape[0]} rows"
            raise tensor_error(source, "mapping", expected, f"shape={sizes}")
        self.shapes = {_OURS: (*sizes, shape[1])}

    def name_in_file(self, name: str) -> str:
        """Returns what the file calls the table."""
        return self._table

    def read(self, name: str) -> np.ndarray:
        source = self._source
        values = source.read(self._table)  # [C, D]
        is_int8 = values.dtype == np.int8  # model2vec has no scale for them
        values = values.astype(np.float32) if is_int8 else read_floats(source, self._table)
        if "mapping" in source.shapes:
            mapping = source.read("mapping")  # [V]
            least, largest = mapping.min(), mapping.max()
            if mapping.dtype.kind not in "iu" or not 0 <= least <= largest < len(values):
                expected = f"hold integers in [0, {len(values)}), rows of {self._table}"
                received = f"{mapping.dtype} from {least} to {largest}"
                raise tensor_error(source, "mapping", expected, received)
            values = values[mapping]  # [C, D] -> [V, D]
        if "weights" in source.shapes:
            values = values * read_floats(source, "weights")[:, np.newaxis]
        return values


def read_static(
    source: TensorSource, config: BertConfig | None, directory: str
) -> tuple[TokenVectors, BertConfig, Tokenizer | None]:
    """Returns the vectors, the network and the tokenizer in a directory of static embeddings.

    `config` is that of the `config.json` of model2vec; None without one.

    Raises `CheckpointError` if the tensors are not those of static embeddings or of the tokenizer,
    and `DataError` or `ConfigError` if the tokenizer cannot be read.
    """
    vectors = TokenVectors(source)
    vocab_size, size = vectors.shapes[_OURS]
    drops_unknown, config = config is not None, config or BertConfig.static(extra={})
    changes = {"vocab_size": vocab_size, "hidden_size": size}
    # The table that is written has a row for each token.
    extra = {key: config.extra[key] for key in config.extra if key != "vocabulary_quantization"}
    tokenizer = None
    if find_tokenizer(directory) is not None:
        definition = subword_files.read_definition(directory)
        check(definition, optional(_DEFINITION), f"The tokenizer in {directory}", DataError)
        if definition is not None and not drops_unknown:
            extra["max_length"] = (definition.get("truncation") or {}).get("max_length")
        tokenizer = _tokenizer(directory, definition)
        if tokenizer.vocab_size != vocab_size:
            expected = f"have a vector for each of {tokenizer.vocab_size} tokens of the tokenizer"
            raise file_error(source.path, expected, f"{vocab_size} vectors")
        ignored = {tokenizer.cls_token_id, tokenizer.sep_token_id}
        ignored |= {tokenizer.unk_token_id} if drops_unknown else set()
        changes["ignored_token_ids"] = config.ignored_token_ids or sorted(ignored)
        changes["pad_token_id"] = tokenizer.pad_token_id
    return vectors, dataclasses.replace(config, **changes, extra=extra), tokenizer


def _tokenizer(directory, definition):
    """Reads a tokenizer, which in model2vec's files puts no tokens around a text."""
    options = {}
    if definition is not None:
        pieces = definition["model"]["vocab"]
        if isinstance(pieces, list):  # of a Unigram model
            pieces = {piece: index for index, (piece, _) in enumerate(pieces)}
        ids = dict(pieces)
        ids |= {token["content"]: token["id"] for token in definition.get("added_tokens") or ()}
        if definition.get("post_processor") is None:
            cls, sep = next((ends for ends in _ENDS if {*ends} <= {*ids}), (None, None))
            if cls is None:
                expected = f"have one of the tokens {[ends[0] for ends in _ENDS]}"
                raise file_error(f"The tokenizer in {directory}", expected, "none of them")
            ends = {"cls": [cls, ids[cls]], "sep": [sep, ids[sep]]}
            definition = {**definition, "post_processor": {"type": "BertProcessing", **ends}}
        options["definition"] = definition
        if not is_subword(definition) and "[MASK]" not in ids:
            options["mask_token"] = None
    return load_tokenizer(directory, **options)
