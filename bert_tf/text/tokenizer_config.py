"""Hugging Face's `tokenizer_config.json`, and the constructor arguments of tokenizers in files.

Every key that changes ids is honoured or refused by name; docs/tokenization.md lists them.

Reference: transformers `tokenization_utils_base.py`.
"""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.base.json_files import read_json_if_any
from bert_tf.base.json_schema import (
    ANYTHING,
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
from bert_tf.errors import ConfigError, DataError, user_error
from bert_tf.text.chinese_words import SEGMENTERS
from bert_tf.text.packing import TRUNCATION_SIDES
from bert_tf.text.tokenizer_json import ADDED_TOKEN, MOST_ADDED_TOKENS
from bert_tf.text.unicode_tables import CHARACTER_RULES
from bert_tf.text.vocabulary import CONTINUATION

CONFIG_FILE = "tokenizer_config.json"
# Hugging Face writes int(1e30) if there is no limit.
NO_LIMIT = 10**9
ERRORS = ("strict", "replace")  # what to do with text that is not UTF-8
TOKENS = ("unk_token", "sep_token", "pad_token", "cls_token", "mask_token", "number_token")
TWO_SEPARATORS = "MPNetTokenizer"  # Hugging Face's class with two between the segments of a pair
CHINESE_WORDS = "RoFormerTokenizer"  # Hugging Face's class with jieba
# Constructor argument -> key. Hugging Face does not know the last four, but keeps them.
_SAME_KEYS = ("strip_accents", "split_special_tokens", "truncation_side")
_SAME_KEYS += ("additional_special_tokens", *TOKENS, "max_input_chars_per_word", "errors")
_SAME_KEYS += ("character_rules",)
_KEYS = {
    "lowercase": "do_lower_case",
    "split_on_cjk": "tokenize_chinese_chars",
    "max_length": "model_max_length",
    **{name: name for name in _SAME_KEYS},
}
_SEGMENT_IDS = "token_type_ids"  # one of Hugging Face's `model_input_names`

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
        "has_segments": optional(FLAG),
        "character_rules": may_lack(one_of(*CHARACTER_RULES)),
        "segmenter": optional(one_of(*SEGMENTERS)),
        "additional_special_tokens": may_lack(list_of(_PIECE, most=MOST_ADDED_TOKENS)),
        "added_tokens": may_lack(list_of(ADDED_TOKEN, most=MOST_ADDED_TOKENS)),
        **dict.fromkeys(TOKENS[:4], may_lack(_PIECE)),
        **dict.fromkeys(TOKENS[4:], optional(_PIECE)),
        **dict.fromkeys(("lowercase", "split_on_cjk"), may_lack(FLAG)),
        "strip_accents": optional(FLAG),
    }
)
_NAMED = either(_PIECE, object_of({"content": _PIECE}))  # an AddedToken of Hugging Face
_LENGTH = Kind(
    f"an integer in [2, {NO_LIMIT}], or a larger number for no limit",
    lambda value: integer(2, NO_LIMIT).fits(value) or (number().fits(value) and value > NO_LIMIT),
)
_FLAGS = ("do_lower_case", "strip_accents", "tokenize_chinese_chars", "split_special_tokens")
_FLAGS += ("truncates_middle", "has_mask_token", "add_prefix_space")
_LENGTHS = ("max_len", "model_max_length")  # the first is the older name of the second
_SPECIAL = ("additional_special_tokens", "extra_special_tokens")
_ENDS = ("bos_token", "eos_token")
_CONFIG = object_of(
    {
        **dict.fromkeys(_FLAGS, optional(FLAG)),
        **dict.fromkeys(_LENGTHS, optional(_LENGTH)),
        "tokenizer_class": optional(text()),
        "truncation_side": optional(one_of(*TRUNCATION_SIDES)),
        "max_input_chars_per_word": optional(integer(least=1)),
        "errors": optional(one_of(*ERRORS)),
        "character_rules": optional(one_of(*CHARACTER_RULES)),
        "model_input_names": optional(list_of(text())),
        "added_tokens_decoder": optional(mapping_of(ADDED_TOKEN)),
        **dict.fromkeys(_SPECIAL, optional(either(list_of(_NAMED), mapping_of(_NAMED)))),
        **dict.fromkeys((*TOKENS, *_ENDS), optional(_NAMED)),
    }
)
# Hugging Face's classes that read the files of ours in another way.
_OTHER_CLASSES = {
    *("Barthez", "BertJapanese", "Bertweet", "Esm", "Funnel", "M2M100", "MBart", "MBart50", "Nllb"),
    *("PLBart", "Phobert", "ProphetNet", "Splinter", "Tapas", "XGLM"),
}
_CLASS = optional(
    Kind(
        f"a tokenizer other than {', '.join(sorted(_OTHER_CLASSES))}",
        lambda value: (
            isinstance(value, str)
            and value.removesuffix("Fast").removesuffix("Tokenizer") not in _OTHER_CLASSES
        ),
    )
)
# What config.json says where tokenizer_config.json names no class, as in older checkpoints.
_MODEL = object_of({"tokenizer_class": _CLASS})
_SUPPORTED = object_of(
    {
        "tokenizer_class": _CLASS,
        "split_by_punct": optional(one_of(False)),
        "do_basic_tokenize": optional(one_of(True)),
        "never_split": optional(list_of(ANYTHING, most=0)),
        "wordpieces_prefix": optional(one_of(CONTINUATION)),
        "word_tokenizer_type": optional(one_of("basic")),
        "subword_tokenizer_type": optional(one_of("wordpiece")),
        "sp_model_kwargs": optional(object_of({}, only=True)),
    }
)
_ADDS_ENDS = ("add_bos_token", "add_eos_token")
_NO_ENDS = object_of(dict.fromkeys(_ADDS_ENDS, optional(one_of(False))))


def read(directory: str | os.PathLike, may_add_ends: bool = False) -> dict[str, Any]:
    """Returns the `tokenizer_config.json` of a directory, or no keys if there is none.

    Raises `DataError` if it cannot be read, and `ConfigError` if it says that text becomes ids in a
    way that is not supported. With `may_add_ends`, it may add a token at both ends of a text, as
    the `post_processor` does anyway.
    """
    path = os.path.join(directory, CONFIG_FILE)
    config = read_json_if_any(path, _CONFIG, DataError)
    check(config, _SUPPORTED, path, ConfigError)
    if not (may_add_ends and all(config.get(key) is True for key in _ADDS_ENDS)):
        check(config, _NO_ENDS, path, ConfigError)
    if config.get("tokenizer_class") is None:
        path = os.path.join(directory, "config.json")
        model = read_json_if_any(path, OBJECT, DataError)
        check(model, _MODEL, path, ConfigError)
        by_type = CHINESE_WORDS if model.get("model_type") == "roformer" else None
        if is_class(model.get("tokenizer_class") or by_type, CHINESE_WORDS):
            config = {**config, "tokenizer_class": CHINESE_WORDS}
    return config


def is_class(name: str | None, tokenizer_class: str) -> bool:
    """Returns whether a name in a file is that of a class of Hugging Face, fast or not."""
    return (name or "").removesuffix("Fast") == tokenizer_class


def options(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the constructor arguments that a `tokenizer_config.json` sets."""
    config = {"model_max_length": config.get("max_len"), **config}
    found = {name: config[key] for name, key in _KEYS.items() if config.get(key) is not None}
    found = {name: _content(value) for name, value in found.items() if name not in _SPECIAL}
    if found.get("max_length", 0) > NO_LIMIT:
        del found["max_length"]
    if config.get("truncates_middle") is True:
        found["truncation_side"] = "middle"
    if config.get("has_mask_token") is False:
        found["mask_token"] = None
    if is_class(config.get("tokenizer_class"), TWO_SEPARATORS):
        found["separators"] = 2
    if is_class(config.get("tokenizer_class"), CHINESE_WORDS):
        found |= {"segmenter": "jieba", "split_on_cjk": True}  # whatever tokenize_chinese_chars is
    if config.get("model_input_names") is not None:
        found["has_segments"] = _SEGMENT_IDS in config["model_input_names"]
    return found


def added_tokens(config: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Returns the tokens that a `tokenizer_config.json` adds, by their text: flags, and ids if any.

    Raises `DataError` if an id is no integer.
    """
    named = [config.get(name) for name in _ENDS]
    for tokens in (config.get(name) or () for name in _SPECIAL):
        named += tokens.values() if isinstance(tokens, Mapping) else tokens
    added = {_content(token): {"special": True} for token in named if token is not None}
    for index, token in (config.get("added_tokens_decoder") or {}).items():
        if not index.isdecimal():
            received = f"the key {index!r:.200} in {CONFIG_FILE}."
            raise user_error("`added_tokens_decoder`", "have ids as keys", received, DataError)
        added[token["content"]] = {**token, "id": int(index)}
    return added


def content(arguments: Mapping[str, Any], tokenizer_class: str) -> dict[str, Any]:
    """Returns the `tokenizer_config.json` with the constructor arguments of a tokenizer."""
    given = {name: value for name, value in arguments.items() if value is not None}
    values = {_KEYS[name]: value for name, value in given.items() if name in _KEYS}
    values["tokenizer_class"] = tokenizer_class
    values.setdefault("model_max_length", int(1e30))
    if values["truncation_side"] == "middle":  # Hugging Face refuses unknown values
        del values["truncation_side"]
        values["truncates_middle"] = True
    if "mask_token" not in values:
        values["has_mask_token"] = False
    # transformers 5's RoFormerTokenizer has segment ids only if its files say so.
    is_usual = given.get("has_segments") == (given.get("separators") == 1)
    if "has_segments" in given and (tokenizer_class == CHINESE_WORDS or not is_usual):
        segments = [_SEGMENT_IDS] * given["has_segments"]
        values["model_input_names"] = ["input_ids", *segments, "attention_mask"]
    return values


def _content(value: Any) -> Any:
    return value["content"] if isinstance(value, dict) else value
