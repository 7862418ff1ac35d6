"""Reads the tokenizer's files of Hugging Face and keras-hub, and writes those of Hugging Face."""

import logging
import os
from collections.abc import Sequence
from typing import Any

from bert_tf.errors import ConfigError, DataError, UserError
from bert_tf.files import recover, staged_files
from bert_tf.json_files import read_json, write_json
from bert_tf.json_schema import (
    FLAG,
    OBJECT,
    Kind,
    check,
    either,
    integer,
    list_of,
    mapping_of,
    may_lack,
    number,
    object_of,
    one_of,
    optional,
    text,
)
from bert_tf.text.packing import TRUNCATION_SIDES
from bert_tf.text.vocabulary import is_cased, read_vocabulary, write_vocabulary

_logger = logging.getLogger("bert_tf")

VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
CONFIG_FILE = "tokenizer_config.json"
_ADDED_FILE = "added_tokens.json"
KERAS_HUB_VOCABULARY_FILE = os.path.join("assets", "tokenizer", "vocabulary.txt")
# The first of them that exists is read.
VOCABULARY_FILES = (VOCABULARY_FILE, KERAS_HUB_VOCABULARY_FILE, TOKENIZER_FILE)

# Hugging Face writes int(1e30) if there is no limit.
NO_LIMIT = 10**9
ERRORS = ("strict", "replace")  # what to do with text that is not UTF-8

_TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "number_token")
_SAME_KEYS = ("strip_accents", "split_special_tokens", "truncation_side", *_TOKENS)
# Constructor argument -> key in tokenizer_config.json. Hugging Face does not know the last three,
# but keeps them.
_KEYS = {
    "lowercase": "do_lower_case",
    "split_on_cjk": "tokenize_chinese_chars",
    "max_length": "model_max_length",
    **{name: name for name in (*_SAME_KEYS, "max_input_chars_per_word", "errors")},
}

_PIECE = text()
# The pieces themselves, not a path: a model file must not make its reader open another file.
_VOCABULARY = list_of(_PIECE, least=1)
# What every tokenizer takes.
COMMON_ARGUMENTS = {
    "max_length": optional(integer(least=2)),
    "truncation_side": may_lack(one_of(*TRUNCATION_SIDES)),
    "errors": may_lack(one_of(*ERRORS)),
    "split_special_tokens": may_lack(FLAG),
}
# The result of `BertTokenizer.get_config`, as model files store it.
ARGUMENTS = object_of(
    {
        **COMMON_ARGUMENTS,
        "vocabulary": _VOCABULARY,
        "max_input_chars_per_word": may_lack(integer(least=1)),
        "separators": may_lack(one_of(1, 2)),
        **dict.fromkeys(_TOKENS[:4], may_lack(_PIECE)),
        **dict.fromkeys(_TOKENS[4:], optional(_PIECE)),
        **dict.fromkeys(("lowercase", "split_on_cjk"), may_lack(FLAG)),
        "strip_accents": optional(FLAG),
    }
)
_TOKEN = optional(either(_PIECE, object_of({"content": _PIECE})))  # an AddedToken of Hugging Face
_LENGTH = Kind(
    f"an integer in [2, {NO_LIMIT}], or a larger number for no limit",
    lambda value: integer(2, NO_LIMIT).fits(value) or (number().fits(value) and value > NO_LIMIT),
)
_TWO_SEPARATORS = "MPNetTokenizer"  # Hugging Face's class with two between the segments of a pair
_FLAGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "split_special_tokens")
_CONFIG = object_of(
    {
        **dict.fromkeys((*_FLAGS, "truncates_middle", "has_mask_token"), optional(FLAG)),
        "model_max_length": optional(_LENGTH),
        "tokenizer_class": optional(text()),
        "truncation_side": optional(one_of(*TRUNCATION_SIDES)),
        "max_input_chars_per_word": optional(integer(least=1)),
        "errors": optional(one_of(*ERRORS)),
        **dict.fromkeys(_TOKENS, _TOKEN),
    }
)
# Constructor argument -> key of a BertNormalizer in tokenizer.json, or of keras-hub's file.
_NORMALIZER = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "split_on_cjk": "handle_chinese_chars",
}
_NORMALIZER_KEYS = object_of(dict.fromkeys(_NORMALIZER.values(), optional(FLAG)))
_BERT = object_of({"normalizer": optional(object_of({"type": one_of("BertNormalizer")}))})
_TOKENIZER = object_of(
    {
        "normalizer": optional(_NORMALIZER_KEYS),
        "post_processor": optional(OBJECT),
        "added_tokens": optional(list_of(object_of({"content": _PIECE}))),
    }
)
_KERAS_HUB_FLAGS = object_of(dict.fromkeys(("lowercase", "strip_accents"), may_lack(FLAG)))
_KERAS_HUB = object_of({"class_name": text(), "config": may_lack(_KERAS_HUB_FLAGS)})


def read(
    directory: str | os.PathLike, vocabulary: str | os.PathLike | Sequence[str] | None = None
) -> dict[str, Any]:
    """Returns the constructor arguments of `BertTokenizer` that a checkpoint directory sets.

    Args:
        directory: A Hugging Face or own directory, a keras-hub preset, or a TF1 checkpoint with its
            `vocab.txt`.
        vocabulary: The pieces or the path of their file. None reads them from the directory.

    Raises:
        DataError: If there is no vocabulary, or a file cannot be read or has added tokens.
        ConfigError: If the files are not of a BERT tokenizer.
        CheckpointError: If an interrupted save in the directory cannot be undone.
    """
    directory = os.fspath(directory)
    recover(directory)
    path = os.path.join(directory, TOKENIZER_FILE)
    tokenizer = read_if_exists(directory, TOKENIZER_FILE, OBJECT)
    is_keras_hub = "class_name" in tokenizer
    check(tokenizer, _KERAS_HUB if is_keras_hub else _TOKENIZER, path, DataError)
    check(tokenizer, _BERT, path, ConfigError)
    flags = tokenizer.get("config" if is_keras_hub else "normalizer") or {}
    options = {name: flags[key] for name, key in _NORMALIZER.items() if flags.get(key) is not None}
    if (tokenizer.get("post_processor") or {}).get("type") == "RobertaProcessing":
        options["separators"] = 2
    options.update(config_options(directory))
    vocabulary = find(directory) if vocabulary is None else vocabulary
    if vocabulary is None:
        raise DataError(
            f"`directory` must contain {VOCABULARY_FILE} or {TOKENIZER_FILE}. Received: "
            f"directory={directory!r}, which has neither. Copy the checkpoint's vocabulary there."
        )
    is_path = isinstance(vocabulary, (str, os.PathLike))
    pieces = read_vocabulary(vocabulary) if is_path else list(vocabulary)
    tokens = None if is_keras_hub else tokenizer.get("added_tokens")
    added = [token["content"] for token in tokens or ()]
    added += read_if_exists(directory, _ADDED_FILE, mapping_of(integer()))
    special = {options.get(name, f"[{name[:-6].upper()}]") for name in _TOKENS[:5]}
    from_text = tokenizer["model"]["vocab"] if vocabulary == path else pieces
    split = sorted({*added} - {*from_text} - special)
    if split:
        raise DataError(
            f"{directory} must have a vocabulary with all added tokens. Received: {split!s:.200}"
            " besides it, which BertTokenizer would split. If no text contains them, pass a list "
            "of all pieces, and these at their ids, as `vocabulary`."
        )
    return {**options, "vocabulary": pieces}


def find(directory: str | os.PathLike, names: Sequence[str] = VOCABULARY_FILES) -> str | None:
    """Returns the path of the first of some files that a directory has, or None."""
    paths = (os.path.join(directory, name) for name in names)
    return next(filter(os.path.exists, paths), None)


def check_case(vocabulary: Sequence[str], lowercase: bool | None, given: bool = True) -> None:
    """Checks that `lowercase` fits the vocabulary.

    The original's `validate_case_matches_checkpoint` decides by the names of checkpoints.

    `lowercase` is None if neither the caller nor the files set it. If the caller did (`given`), a
    choice that does not fit is logged.

    Raises:
        ConfigError: If the vocabulary is cased and `lowercase` is None.
    """
    cased = is_cased(vocabulary)
    if lowercase is None and cased:
        raise ConfigError(
            "`lowercase` must be given for a vocabulary with capital letters if the files do not "
            "say whether to lower-case text. Received: lowercase=None. The checkpoint is cased: "
            "pass lowercase=False, or --do_lower_case=false to a tool."
        )
    if given and lowercase is not None and lowercase == cased:
        _logger.warning(
            "lowercase=%s does not fit the vocabulary, which has %s capital letters: the model "
            "does not know words with capital letters in the form that it will receive.",
            lowercase,
            "many" if cased else "no",
        )


def write(config: dict[str, Any], directory: str | os.PathLike) -> None:
    """Writes `vocab.txt` and `tokenizer_config.json` for a `BertTokenizer.get_config`, atomically.

    Raises:
        DataError: If a piece contains a line end.
        UserError: As `refuse_other`.
        CheckpointError: If an interrupted save in the directory cannot be undone.
    """
    refuse_other(config["vocabulary"], directory)
    name = "BertTokenizer" if config["separators"] == 1 else _TWO_SEPARATORS
    content = config_content(config, name)
    with staged_files(directory) as new:
        write_vocabulary(config["vocabulary"], os.path.join(new, VOCABULARY_FILE))
        write_json(os.path.join(new, CONFIG_FILE), content, sort_keys=True)


def refuse_other(vocabulary: Sequence[str], directory: str | os.PathLike) -> None:
    """Raises `UserError` if a directory has a `tokenizer.json` with another vocabulary."""
    path = os.path.join(directory, TOKENIZER_FILE)
    try:
        is_other = os.path.exists(path) and read_vocabulary(path) != list(vocabulary)
    except DataError:  # of another kind
        is_other = True
    if is_other:
        raise UserError(
            f"`directory` must not hold the {TOKENIZER_FILE} of another tokenizer. Received: "
            f"directory={os.fspath(directory)!r}, whose {TOKENIZER_FILE} would be read instead of "
            f"the new {VOCABULARY_FILE}. Remove it or save to another directory."
        )


def config_content(arguments: dict[str, Any], tokenizer_class: str) -> dict[str, Any]:
    """Returns the `tokenizer_config.json` with the constructor arguments of a tokenizer."""
    given = {name: value for name, value in arguments.items() if value is not None}
    content = {_KEYS[name]: value for name, value in given.items() if name in _KEYS}
    content["tokenizer_class"] = tokenizer_class
    content.setdefault("model_max_length", int(1e30))
    if content["truncation_side"] == "middle":  # Hugging Face refuses unknown values
        del content["truncation_side"]
        content["truncates_middle"] = True
    if "mask_token" not in content:
        content["has_mask_token"] = False
    return content


def read_if_exists(directory: str | os.PathLike, name: str, kind: Kind) -> dict[str, Any]:
    """Returns the content of a JSON file of `kind`, or no keys if the directory has none.

    Raises:
        DataError: If it cannot be read.
    """
    path = os.path.join(directory, name)
    return read_json(path, kind, DataError) if os.path.exists(path) else {}


def config_options(directory: str | os.PathLike) -> dict[str, Any]:
    """Returns the constructor arguments that the `tokenizer_config.json` of a directory sets.

    Raises:
        DataError: If it cannot be read.
    """
    config = read_if_exists(directory, CONFIG_FILE, _CONFIG)
    found = {name: config[key] for name, key in _KEYS.items() if config.get(key) is not None}
    options = {name: of["content"] if isinstance(of, dict) else of for name, of in found.items()}
    if options.get("max_length", 0) > NO_LIMIT:
        del options["max_length"]
    if config.get("truncates_middle") is True:
        options["truncation_side"] = "middle"
    if config.get("has_mask_token") is False:
        options["mask_token"] = None
    if (config.get("tokenizer_class") or "").removesuffix("Fast") == _TWO_SEPARATORS:
        options["separators"] = 2
    return options
