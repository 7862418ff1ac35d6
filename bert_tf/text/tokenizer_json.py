"""What a Hugging Face `tokenizer.json` says: parts of all models, and those of WordPiece models.

Reference: huggingface/tokenizers `src/processors`, `src/utils`, `src/models/wordpiece` and
`src/normalizers/bert.rs`.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.base.json_schema import (
    FLAG,
    OBJECT,
    check,
    either,
    integer,
    list_of,
    may_lack,
    object_of,
    one_of,
    optional,
    text,
)
from bert_tf.errors import ConfigError, DataError, naming
from bert_tf.text.sentencepiece_model import MOST_PIECES
from bert_tf.text.unicode_tables import HUGGING_FACE
from bert_tf.text.vocabulary import CONTINUATION

MOST_ADDED_TOKENS = 500
MOST_CONTAINERS = MOST_PIECES + 100_000  # a Unigram vocabulary has a list for each piece
PIECE = text(most=1000)
_ENDS = object_of(dict.fromkeys(("cls", "sep"), list_of(either(PIECE, integer()), 2, 2)))
_ITEM = may_lack(object_of({"id": PIECE, "type_id": integer(0, 1)}))
_ITEMS = list_of(object_of({"SpecialToken": _ITEM, "Sequence": _ITEM}, only=True), most=20)
_TEMPLATE = object_of({"single": _ITEMS, "pair": _ITEMS, "special_tokens": may_lack(OBJECT)})
_DIRECTION = may_lack(one_of("Left", "Right"))
ROWS = {
    "truncation": optional(object_of({"direction": _DIRECTION})),
    "padding": optional(object_of({"pad_token": may_lack(PIECE)})),
}
# What steps do without their keys.
_DEFAULTS = {
    "ByteLevel": {"add_prefix_space": True, "trim_offsets": True},
    "Strip": {"strip_left": False, "strip_right": False},
}
_TEXT = None  # the place of a text among tokens
# How `tokenizers` differs from google-research/bert: the first is from wordpiece/mod.rs. It is the
# same in the tokenizers that transformers makes of a vocab.txt.
HUGGING_FACE_OPTIONS = {"max_input_chars_per_word": 100, "character_rules": HUGGING_FACE}
FLAGS = ("lstrip", "rstrip", "normalized", "single_word", "special")
ADDED_TOKEN = object_of({"content": PIECE, **dict.fromkeys(FLAGS, may_lack(FLAG))})
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
        # Its pieces are checked by `read_vocabulary`, which reads a vocab.txt if there is one.
        "model": may_lack(object_of({**_MODEL, "vocab": may_lack(OBJECT)})),
        "normalizer": may_lack(object_of(dict.fromkeys(_NORMALIZER.values(), optional(FLAG)))),
        "post_processor": optional(OBJECT),
        "added_tokens": optional(list_of(ADDED_TOKEN)),
        **ROWS,
    }
)


def flat(step: dict | None, key: str) -> list[dict[str, Any]]:
    """Returns the steps of a Sequence, which are below `key`, or the only step.

    Raises `ConfigError` if they are not objects.
    """
    if step is None:
        return []
    if step.get("type") != "Sequence":
        return [step]
    return [inner for part in _parts(step, key) for inner in flat(part, key)]


def _parts(sequence: dict, key: str) -> list[dict[str, Any]]:
    check(sequence, object_of({key: list_of(OBJECT)}), "a Sequence of the tokenizer", ConfigError)
    return sequence[key]


def complete_step(step: dict | None, key: str, ids: Mapping[str, int]) -> dict | None:
    """Returns a step, or a Sequence of steps below `key`, with all keys that `tokenizers` needs.

    `ids` are those of the pieces. `special_tokens` must have accepted a post-processor. Raises
    `ConfigError` if the parts of a Sequence are not objects.
    """
    if step is None:
        return None
    if step.get("type") == "Sequence":
        return {**step, key: [complete_step(part, key, ids) for part in _parts(step, key)]}
    step = {**_DEFAULTS.get(step.get("type"), {}), **step}
    if key == "processors" and step.get("type") == "TemplateProcessing":
        added = [token for token, _ in _tokens(step["single"]) if token is not _TEXT]
        step["special_tokens"] = {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in added
        }
    return step


def row_options(content: Mapping[str, Any]) -> dict[str, str]:
    """Returns the constructor arguments that `truncation` and `padding`, which fit `ROWS`, set.

    Matches transformers: their lengths are ignored, because each call has its own.
    """
    direction = (content.get("truncation") or {}).get("direction")
    pad_token = (content.get("padding") or {}).get("pad_token")
    found = {"truncation_side": direction and direction.lower(), "pad_token": pad_token}
    return {name: value for name, value in found.items() if value is not None}


def special_tokens(
    step: dict | None, ids: Mapping[str, int], may_repeat: bool = False
) -> dict[str, Any]:
    """Returns the special tokens that a `post_processor` adds, and how it joins pairs.

    These are `cls_token`, `sep_token`, `separators`, `has_segments` and `trim_offsets`, and with
    `may_repeat` also `repeats_cls`; `ids` are those of the pieces. Raises `DataError` if a value is
    of a wrong type, and `ConfigError` if it adds other tokens.
    """
    single, pair, trims = [], [], False
    added: dict[str, Any] = {}  # the ids that it puts in place of its tokens
    parts = flat(step, "processors")
    if sum(part.get("type") != "ByteLevel" for part in parts) > 1:
        parts = []  # each would add its tokens
    for part in parts:
        kind = part.get("type")
        if kind in ("RobertaProcessing", "BertProcessing"):
            check(part, _ENDS, "`post_processor`", DataError)
            form = (2, 0) if kind == "RobertaProcessing" else (1, 1)
            single, pair = _joined(part["cls"][0], part["sep"][0], *form)
            added = {token: [number] for token, number in (part["cls"], part["sep"])}
        elif kind == "TemplateProcessing":
            check(part, _TEMPLATE, "`post_processor`", DataError)
            single, pair = _tokens(part["single"]), _tokens(part["pair"])
            added = {
                token: of.get("ids") if isinstance(of, dict) else of
                for token, of in part.get("special_tokens", {}).items()
            }
        if kind in ("ByteLevel", "RobertaProcessing"):
            trims |= part.get("trim_offsets") is not False
    match single, pair:
        case [(cls, _), _, (sep, _)], [*_, (_, second)] if cls in ids and sep in ids:
            separators = len(pair) - 4
            is_known = all(added.get(token, [ids[token]]) == [ids[token]] for token in (cls, sep))
            repeats = may_repeat and separators == 2 and pair[3][0] == cls
            if is_known and (single, pair) == _joined(cls, sep, separators, second, repeats):
                ends = {"cls_token": cls, "sep_token": sep, "trim_offsets": trims}
                ends |= {"separators": separators, "has_segments": second == 1}
                return {**ends, "repeats_cls": repeats} if may_repeat else ends
    raise ConfigError(
        "`post_processor` must be RobertaProcessing, BertProcessing or TemplateProcessing that "
        "puts one token of the vocabulary, with its id there, before a text, one after it, and one "
        f"or more between two. Received: post_processor={step!r:.500}."
    )


def _joined(
    cls: str, sep: str, separators: int, second: int, repeats_cls: bool = False
) -> tuple[list, list]:
    """Returns the tokens of a text and of a pair, with types; the type of the last is `second`."""
    single = [(cls, 0), (_TEXT, 0), (sep, 0)]
    between = [(cls, second)] if repeats_cls else single[2:] * (separators - 1)
    return single, [*single, *between, (_TEXT, second), (sep, second)]


def _tokens(items: list[dict]) -> list[tuple]:
    """Returns the tokens in the items of a TemplateProcessing, as `_joined` does."""
    items = [named for item in items for named in item.items()]
    return [(_TEXT if name == "Sequence" else of["id"], of["type_id"]) for name, of in items]


def wordpiece_options(content: Mapping[str, Any], path: str | os.PathLike) -> dict[str, Any]:
    """Returns the constructor arguments of `BertTokenizer` that a `tokenizer.json` sets.

    Keys that are missing are BERT's; `tokenizers` writes all of them. Raises `DataError` if a value
    is of a wrong type. The message names the file `path`. Raises `ConfigError` if a part is not
    supported.
    """
    kind = (content.get("model") or {}).get("type")
    if kind in ("BPE", "Unigram"):
        raise ConfigError(
            f"{path} must be that of a WordPiece tokenizer. Received: {kind}. Open its directory "
            "with `bert_tf.text.load_tokenizer`, which takes all kinds."
        )
    check(content, _SUPPORTED, path, ConfigError)
    check(content, _DEFINITION, path, DataError)
    model, normalizer = content.get("model", {}), content.get("normalizer", {})
    found = dict(HUGGING_FACE_OPTIONS)
    found |= {key: model[key] for key in _MODEL if key in model}
    flags = {name: normalizer.get(key) for name, key in _NORMALIZER.items()}
    found |= {name: value for name, value in flags.items() if value is not None}
    if "post_processor" in content:
        added = {token["content"]: token.get("id") for token in content.get("added_tokens") or ()}
        with naming(path):
            ends = special_tokens(content["post_processor"], {**added, **model.get("vocab", {})})
        found |= {name: value for name, value in ends.items() if name != "trim_offsets"}
    return found | row_options(content)


def roformer_definition(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the `tokenizer.json` of a `BertTokenizer` with a segmenter, as transformers has it.

    The segmenter itself is in no file: the class in `tokenizer_config.json` stands for it.
    """
    return _definition({**arguments, "split_on_cjk": False})


def wordpiece_definition(
    arguments: Mapping[str, Any], pieces: Sequence[str], kept_whole: Sequence[str]
) -> dict[str, Any]:
    """Returns the `tokenizer.json` with which `tokenizers` gives the ids of a `BertTokenizer`.

    `arguments` are those of its constructor. `pieces` includes the added tokens, and `kept_whole`
    are the special tokens that are not split in a text.
    """
    ids = {piece: index for index, piece in enumerate(pieces)}
    special = [{"content": piece, "special": True} for piece in kept_whole]
    added = [
        {"id": ids[token["content"]], **with_flags(token)}
        for token in (*special, *arguments["added_tokens"])
    ]
    form = arguments["separators"], int(arguments["has_segments"])
    single, pair = _joined(arguments["cls_token"], arguments["sep_token"], *form)
    step = {"type": "TemplateProcessing", "single": _items(single), "pair": _items(pair)}
    return {
        **_definition(arguments),
        "added_tokens": sorted(added, key=lambda token: token["id"]),
        "post_processor": complete_step(step, "processors", ids),
    }


def _items(tokens: list[tuple]) -> list[dict]:
    """Returns the items of a TemplateProcessing for what `_joined` returns."""
    names = iter("AB")
    return [
        {"Sequence": {"id": next(names), "type_id": kind}}
        if token is _TEXT
        else {"SpecialToken": {"id": token, "type_id": kind}}
        for token, kind in tokens
    ]


def _definition(arguments: Mapping[str, Any]) -> dict[str, Any]:
    flags = {key: arguments[name] for name, key in _NORMALIZER.items()}
    model = {name: arguments[name] for name in _MODEL} | {"continuing_subword_prefix": CONTINUATION}
    pieces = {piece: index for index, piece in enumerate(arguments["vocabulary"])}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, **flags},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": CONTINUATION, "cleanup": True},
        "model": {"type": "WordPiece", **model, "vocab": pieces},
    }


def with_flags(token: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an added token with all flags, as Hugging Face sets them by default."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    return {**flags, "normalized": not token.get("special", False), **token}


def with_added(pieces: Sequence[str], tokens: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the pieces and the added tokens that are none of them, in the order of their ids."""
    return list(dict.fromkeys([*pieces, *(token["content"] for token in tokens)]))


def is_kept_whole(token: Mapping[str, Any]) -> bool:
    """Returns whether `BertTokenizer` can find an added token in a text: it takes only itself."""
    return token.get("special") is True and not any(token.get(flag) for flag in FLAGS[:-1])
