"""What a Hugging Face `tokenizer.json` of a WordPiece model says, checked.

Reference: huggingface/tokenizers `src/models/wordpiece`, `src/normalizers/bert.rs`.
"""

import os
from collections.abc import Mapping
from typing import Any

from bert_tf.base.json_schema import (
    FLAG,
    OBJECT,
    check,
    integer,
    list_of,
    mapping_of,
    may_lack,
    object_of,
    one_of,
    optional,
)
from bert_tf.errors import ConfigError, DataError, naming
from bert_tf.text.tokenizer_steps import PIECE, ROWS, row_options, special_tokens
from bert_tf.text.vocabulary import CONTINUATION

# tokenizers, wordpiece/mod.rs; also of the tokenizers that transformers makes of a vocab.txt.
MAX_INPUT_CHARS_PER_WORD = 100
_FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")
ADDED_TOKEN = object_of({"content": PIECE, **dict.fromkeys(_FLAGS, may_lack(FLAG))})
# What `BertTokenizer` can do.
_SUPPORTED = object_of(
    {
        "model": may_lack(
            object_of(
                {
                    "type": may_lack(one_of("WordPiece")),
                    "continuing_subword_prefix": may_lack(one_of(CONTINUATION)),
                }
            )
        ),
        "normalizer": may_lack(
            object_of({"type": one_of("BertNormalizer"), "clean_text": may_lack(one_of(True))})
        ),
        "pre_tokenizer": may_lack(object_of({"type": one_of("BertPreTokenizer")})),
    }
)
# Constructor argument -> key of the model or the normalizer.
_MODEL = {"max_input_chars_per_word": may_lack(integer(least=1)), "unk_token": may_lack(PIECE)}
_NORMALIZER = {
    "lowercase": "lowercase",
    "strip_accents": "strip_accents",
    "split_on_cjk": "handle_chinese_chars",
}
_DEFINITION = object_of(
    {
        "model": may_lack(object_of({**_MODEL, "vocab": may_lack(mapping_of(integer()))})),
        "normalizer": may_lack(object_of(dict.fromkeys(_NORMALIZER.values(), optional(FLAG)))),
        "post_processor": optional(OBJECT),
        "added_tokens": optional(list_of(ADDED_TOKEN)),
        **ROWS,
    }
)


def options(content: Mapping[str, Any], path: str | os.PathLike) -> dict[str, Any]:
    """Returns the constructor arguments of `BertTokenizer` that a `tokenizer.json` sets.

    Keys that are missing are BERT's; `tokenizers` writes all of them.

    Raises:
        DataError: If a value is of a wrong type. The message names the file `path`.
        ConfigError: If a part is not supported.
    """
    check(content, _SUPPORTED, path, ConfigError)
    check(content, _DEFINITION, path, DataError)
    model, normalizer = content.get("model", {}), content.get("normalizer", {})
    found = {"max_input_chars_per_word": MAX_INPUT_CHARS_PER_WORD}
    found |= {key: model[key] for key in _MODEL if key in model}
    flags = {name: normalizer.get(key) for name, key in _NORMALIZER.items()}
    found |= {name: value for name, value in flags.items() if value is not None}
    if "post_processor" in content:
        added = {token["content"]: token.get("id") for token in content.get("added_tokens") or ()}
        with naming(path):
            ends = special_tokens(content["post_processor"], {**added, **model.get("vocab", {})})
        found |= {name: value for name, value in ends.items() if name != "trim_offsets"}
    return found | row_options(content)


def is_kept_whole(token: Mapping[str, Any]) -> bool:
    """Returns whether `BertTokenizer` can find an added token in a text: it takes only itself."""
    return token.get("special") is True and not any(token.get(flag) for flag in _FLAGS[:-1])
