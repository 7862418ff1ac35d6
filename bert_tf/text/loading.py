"""Finds the tokenizer of a checkpoint directory."""

import os

from bert_tf.errors import DataError
from bert_tf.json_files import read_json
from bert_tf.json_schema import object_of, optional, text
from bert_tf.text import subword_files, tokenizer_files
from bert_tf.text.subword_definition import MOST_CONTAINERS
from bert_tf.text.subword_tokenizer import SubwordTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_base import Tokenizer

_SUBWORD_FILES = (
    subword_files.XLM_ROBERTA_FILE,
    subword_files.ALBERT_FILE,
    subword_files.BYTE_PAIR_FILES[0],
)
_MODEL = object_of({"model": optional(object_of({"type": optional(text())}))})


def load_tokenizer(directory: str | os.PathLike, **options) -> Tokenizer:
    """Creates the tokenizer of a checkpoint directory, of the class that its files need.

    Args:
        directory: A directory of Hugging Face, google-research/bert, keras-hub or this package.
        **options: Constructor arguments of that class that override the files.

    Returns:
        A `SubwordTokenizer` for byte pairs and Unigram models, else a `BertTokenizer`.

    Raises:
        DataError: If there is no tokenizer, or a file cannot be read.
        ConfigError: If a part of the files is not supported, or an option is invalid.
        CheckpointError: If an interrupted save in the directory cannot be undone.

    Example:
        >>> type(bert_tf.text.load_tokenizer("minilm/")).__name__
        'BertTokenizer'
    """
    path = os.path.join(directory, tokenizer_files.TOKENIZER_FILE)
    if os.path.exists(path):
        content = read_json(path, _MODEL, DataError, most_containers=MOST_CONTAINERS)
        model = content.get("model") or {}
        is_subword = model.get("type") in ("BPE", "Unigram") or "merges" in model
        options = {"definition": content, **options} if is_subword else options
    else:
        is_subword = _find(directory, _SUBWORD_FILES) is not None
    return (SubwordTokenizer if is_subword else BertTokenizer).from_pretrained(directory, **options)


def find_tokenizer(directory: str | os.PathLike) -> str | None:
    """Returns the path of a file from which `load_tokenizer` reads, or None if there is none."""
    return tokenizer_files.find_vocabulary(directory) or _find(directory, _SUBWORD_FILES)


def _find(directory, names):
    paths = (os.path.join(directory, name) for name in names)
    return next(filter(os.path.exists, paths), None)
