"""Reads the tokenizer's files of Hugging Face and keras-hub, and writes those of Hugging Face."""

import logging
import math
import os
from collections.abc import Sequence
from typing import Any

from bert_tf.base.files import recover, staged_files
from bert_tf.base.json_files import read_json_if_any, write_json
from bert_tf.base.json_schema import (
    FLAG,
    OBJECT,
    Kind,
    check,
    integer,
    mapping_of,
    may_lack,
    object_of,
    text,
)
from bert_tf.errors import ConfigError, DataError, UserError, naming, user_error
from bert_tf.text import tokenizer_config, tokenizer_json
from bert_tf.text.tokenizer_config import CHINESE_WORDS, CONFIG_FILE, TOKENS, TWO_SEPARATORS
from bert_tf.text.vocabulary import is_cased, read_vocabulary, write_vocabulary

_logger = logging.getLogger("bert_tf")

VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
_ADDED_FILE = "added_tokens.json"
_ORIGINAL_FILE = "bert_config.json"  # of google-research/bert's checkpoints
KERAS_HUB_VOCABULARY_FILE = os.path.join("assets", "tokenizer", "vocabulary.txt")
# The first of them that exists is read.
VOCABULARY_FILES = (VOCABULARY_FILE, KERAS_HUB_VOCABULARY_FILE, TOKENIZER_FILE)

_KERAS_HUB_FLAGS = object_of(dict.fromkeys(("lowercase", "strip_accents"), may_lack(FLAG)))
_KERAS_HUB = object_of({"class_name": text(), "config": may_lack(_KERAS_HUB_FLAGS)})


def read(
    directory: str | os.PathLike,
    vocabulary: str | os.PathLike | Sequence[str] | None = None,
    definition: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns the constructor arguments of `BertTokenizer` that a checkpoint directory sets.

    Args:
        directory: A Hugging Face or own directory, a keras-hub preset, or a TF1 checkpoint.
        vocabulary: The pieces or the path of their file. None reads them from the directory.
        definition: The content of its `tokenizer.json`. None reads it, if it exists.

    Raises:
        DataError: If there is no vocabulary, a file cannot be read, or added tokens have other ids.
        ConfigError: If the files are not of a BERT tokenizer.
        CheckpointError: If an interrupted save in the directory cannot be undone.
    """
    directory = os.fspath(directory)
    recover(directory)
    path = os.path.join(directory, TOKENIZER_FILE)
    if definition is None:
        limit = tokenizer_json.MOST_CONTAINERS  # the error of another kind of tokenizer says so
        definition = read_json_if_any(path, OBJECT, DataError, most_containers=limit)
    if "class_name" in definition:
        check(definition, _KERAS_HUB, path, DataError)
        options, definition = dict(definition.get("config", {})), {}
    else:
        options = tokenizer_json.wordpiece_options(definition, path) if definition else {}
    config = tokenizer_config.read(directory)
    options = _merged(options, tokenizer_config.options(config), directory)
    if config and not (definition or os.path.exists(os.path.join(directory, _ORIGINAL_FILE))):
        options = {**tokenizer_json.HUGGING_FACE_OPTIONS, **options}
    vocabulary = find(directory) if vocabulary is None else vocabulary
    if vocabulary is None:
        raise DataError(
            f"`directory` must contain {VOCABULARY_FILE} or {TOKENIZER_FILE}. Received: "
            f"directory={directory!r}, which has neither. Copy the checkpoint's vocabulary there."
        )
    is_path = isinstance(vocabulary, (str, os.PathLike))
    pieces = read_vocabulary(vocabulary) if is_path else list(vocabulary)
    added = added_tokens(directory, config, definition)
    special = {options.get(name, f"[{name[:-6].upper()}]") for name in TOKENS[:5]}
    if is_path:  # the pieces of a tokenizer.json have added tokens at their end
        known = {*definition.get("model", {}).get("vocab", pieces)} | special
        while pieces and pieces[-1] in added and pieces[-1] not in known:
            del pieces[-1]
    tokens = [token for name, token in added.items() if name not in special]
    with naming(directory):
        return {**options, **_with_ids(tokens, pieces), "vocabulary": pieces}


def added_tokens(
    directory: str | os.PathLike, config: dict[str, Any], definition: dict[str, Any]
) -> dict[str, dict[str, Any]]:
    """Returns the tokens that the files of a directory add, by their text: flags, and ids if any.

    `config` and `definition` are the contents of its `tokenizer_config.json` and `tokenizer.json`.
    Raises `DataError` if a file cannot be read.
    """
    ids = read_if_exists(directory, _ADDED_FILE, mapping_of(integer()))
    added = {token: {"content": token, "id": index} for token, index in ids.items()}
    for name, token in tokenizer_config.added_tokens(config).items():
        added[name] = {**added.get(name, {}), "content": name, **token}
    for token in definition.get("added_tokens") or ():
        added[token["content"]] = dict(token)
    return added


def _with_ids(tokens: list[dict[str, Any]], pieces: list[str]) -> dict[str, Any]:
    """Returns the arguments of `BertTokenizer` for added tokens.

    Raises `DataError` if the ids of tokens that are no pieces do not follow those of the pieces.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}
    known = [token for token in tokens if token["content"] in ids]
    others = [token for token in tokens if token["content"] not in ids]
    others.sort(key=lambda token: token.get("id", math.inf))  # the sort is stable
    ids |= {token["content"]: len(pieces) + index for index, token in enumerate(others)}
    for token in tokens:
        if token.get("id", ids[token["content"]]) != ids[token["content"]]:
            raise DataError(
                f"Added tokens must have the ids of their pieces, or those after the {len(pieces)} "
                f"pieces, each once. Received: {token!r:.200}. Take the vocabulary that they were "
                "added to."
            )
    whole = {token["content"] for token in known if tokenizer_json.is_kept_whole(token)}
    others += [token for token in known if token["content"] not in whole]
    names = {"content", *tokenizer_json.FLAGS}
    others = [{name: token[name] for name in token if name in names} for token in others]
    return {"additional_special_tokens": sorted(whole, key=ids.get), "added_tokens": others}


def _merged(options: dict[str, Any], config: dict[str, Any], directory: str) -> dict[str, Any]:
    """Returns the options of both files. The configuration overrides the definition.

    Raises `ConfigError` if they name different special tokens, or number of separators.
    """
    for name in ("unk_token", "cls_token", "sep_token"):
        if options.get(name, config.get(name)) != config.get(name, options.get(name)):
            expected = f"be the same in {TOKENIZER_FILE} and {CONFIG_FILE} of {directory}"
            received = f"{options[name]!r} and {config[name]!r}."
            raise user_error(f"`{name}`", expected, received, ConfigError)
    has_segments = options.get("has_segments") is not False and config.get("has_segments")
    both = {**options, **config}
    return both if has_segments is None else {**both, "has_segments": has_segments}


def find(directory: str | os.PathLike, names: Sequence[str] = VOCABULARY_FILES) -> str | None:
    """Returns the path of the first of some files that a directory has, or None."""
    paths = (os.path.join(directory, name) for name in names)
    return next(filter(os.path.exists, paths), None)


def check_case(
    vocabulary: Sequence[str],
    lowercase: bool | None,
    given: bool = True,
    directory: str | os.PathLike | None = None,
) -> None:
    """Checks that `lowercase` fits the vocabulary.

    The original's `validate_case_matches_checkpoint` decides by the names of checkpoints.

    `lowercase` is None if neither the caller nor the files of the `directory` set it. If the caller
    did (`given`), a choice that does not fit is logged. Raises `ConfigError` if the vocabulary is
    cased and `lowercase` is None.
    """
    cased = is_cased(vocabulary)
    if lowercase is None and cased:
        way_out = "pass --do_lower_case=false"
        if directory is not None:
            path = os.path.join(directory, CONFIG_FILE)
            way_out = "pass lowercase=False to from_pretrained, or --do_lower_case=false to a tool"
            way_out += " that has this flag; or write "
            way_out += f'{{"do_lower_case": false}} into {path}, which all of them read'
        raise ConfigError(
            "`lowercase` must be given for a vocabulary with capital letters if the files do not "
            "say whether to lower-case text. Received: lowercase=None. The checkpoint is cased: "
            f"{way_out}."
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

    With a segmenter, it also writes a `tokenizer.json`.

    Raises:
        DataError: If a piece contains a line end.
        UserError: See `refuse_other`.
        CheckpointError: If an interrupted save in the directory cannot be undone.
    """
    pieces = tokenizer_json.with_added(config["vocabulary"], config["added_tokens"])
    refuse_other(pieces, directory)
    name = "BertTokenizer" if config["separators"] == 1 else TWO_SEPARATORS
    name = name if config["segmenter"] is None else CHINESE_WORDS
    content = tokenizer_config.content(config, name)
    if config["added_tokens"]:
        ids = {piece: index for index, piece in enumerate(pieces)}
        tokens = {str(ids[token["content"]]): token for token in config["added_tokens"]}
        content["added_tokens_decoder"] = tokens
    with staged_files(directory) as new:
        write_vocabulary(config["vocabulary"], os.path.join(new, VOCABULARY_FILE))
        write_json(os.path.join(new, CONFIG_FILE), content, sort_keys=True)
        if config["segmenter"] is not None:
            # From a vocab.txt, transformers 5.24 looks for words in its path instead of its pieces.
            definition = tokenizer_json.roformer_definition(config)
            write_json(os.path.join(new, TOKENIZER_FILE), definition)


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


def read_if_exists(directory: str | os.PathLike, name: str, kind: Kind) -> dict[str, Any]:
    """Returns the content of a JSON file of `kind`, or no keys if the directory has none.

    Raises `DataError` if it cannot be read.
    """
    path = os.path.join(directory, name)
    return read_json_if_any(path, kind, DataError)
