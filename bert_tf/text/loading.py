"""Finds the tokenizer of a checkpoint directory."""

import os

from bert_tf.base import hooks
from bert_tf.errors import require
from bert_tf.text import subword_files, tokenizer_files
from bert_tf.text.subword_definition import is_subword
from bert_tf.text.subword_tokenizer import SubwordTokenizer
from bert_tf.text.tokenizer import BertTokenizer
from bert_tf.text.tokenizer_base import Tokenizer


def load_tokenizer(directory: str | os.PathLike, **options) -> Tokenizer:
    """Creates the tokenizer of a checkpoint directory, of the class that its files need.

    Args:
        directory: A directory of Hugging Face, google-research/bert, keras-hub or this package, or
            another path or a name on the Hugging Face Hub that models open.
        **options: Constructor arguments of that class that override the files.

    Returns:
        A `SubwordTokenizer` for byte pairs and Unigram models, else a `BertTokenizer`.

    Raises:
        DataError: If there is no tokenizer, or a file cannot be read.
        ConfigError: If a part of the files is not supported, or an option is invalid.
        CheckpointError: If there is no such directory, it cannot be downloaded, or an interrupted
            save in it cannot be undone.

    Example:
        >>> type(bert_tf.text.load_tokenizer("minilm/")).__name__
        'BertTokenizer'
    """
    directory = hooks.tokenizer_directory(directory)
    definition = subword_files.read_definition(directory)
    # If one of two files is missing, the error of `SubwordTokenizer` names both.
    is_incomplete = find_tokenizer(directory) and not tokenizer_files.find(directory)
    if is_incomplete if definition is None else is_subword(definition):
        rule = "must be left out: the files of this tokenizer say whether it lower-cases text"
        require("lowercase" not in options, rule, lowercase=options.get("lowercase"))
        return SubwordTokenizer.from_pretrained(directory, **{"definition": definition, **options})
    return BertTokenizer.from_pretrained(directory, **{"definition": definition, **options})


def find_tokenizer(directory: str | os.PathLike) -> str | None:
    """Returns the path of a file from which `load_tokenizer` reads, or None if there is none."""
    names = (*tokenizer_files.VOCABULARY_FILES, *subword_files.FILES)
    return tokenizer_files.find(directory, names)
