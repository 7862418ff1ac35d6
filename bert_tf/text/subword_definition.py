"""What a Hugging Face `tokenizer.json` says, checked: it comes from a stranger.

Reference: huggingface/tokenizers `src/tokenizer/serialization.rs`.
"""

import dataclasses
import os
from typing import Any

from bert_tf.errors import ConfigError, DataError, require
from bert_tf.json_files import read_json
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
from bert_tf.text.tokenizer_files import ERRORS

MOST_CONTAINERS = 2_000_000  # a Unigram vocabulary has a list for each piece
MOST_ADDED_TOKENS = 500
_CHARSMAP_LENGTH = 50_000_000
_PIECE = text(most=1000)
_SCORED = Kind(
    "a piece and its score",
    lambda value: (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and _PIECE.fits(value[0])
        and number().fits(value[1])
    ),
)
_PIECE_OR_ID = either(_PIECE, integer())
_MERGE = either(text(most=2001), list_of(_PIECE, least=2, most=2))
_NOTHING = optional(one_of("", False, 0, 0.0))
_BPE = object_of(
    {
        "vocab": mapping_of(integer(), least=1),
        "merges": list_of(_MERGE),
        "unk_token": optional(_PIECE),
        **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"), _NOTHING),
        **dict.fromkeys(("byte_fallback", "ignore_merges"), _NOTHING),
    }
)
_UNIGRAM = object_of(
    {"vocab": list_of(_SCORED, least=1), "unk_id": integer(), "byte_fallback": _NOTHING}
)
_STEP = object_of({"type": text(), "precompiled_charsmap": optional(text(_CHARSMAP_LENGTH))})
_ADDED_TOKEN = object_of(
    {
        "id": integer(),
        "content": Kind("a string of 1 to 200 characters", lambda v: text(200).fits(v) and v),
        "single_word": may_lack(one_of(False)),
        **dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), may_lack(FLAG)),
    }
)
_DEFINITION = object_of(
    {
        "model": object_of({"type": may_lack(one_of("BPE", "Unigram"))}),
        "added_tokens": optional(list_of(_ADDED_TOKEN, most=MOST_ADDED_TOKENS)),
        **dict.fromkeys(("normalizer", "pre_tokenizer", "post_processor"), optional(_STEP)),
    }
)
# The result of `SubwordTokenizer.get_config`, as model files store it.
ARGUMENTS = object_of(
    {
        "definition": OBJECT,
        "max_length": optional(integer(least=2)),
        "truncation_side": may_lack(one_of(*TRUNCATION_SIDES)),
        "errors": may_lack(one_of(*ERRORS)),
        "split_special_tokens": may_lack(FLAG),
        **dict.fromkeys(("unk_token", "pad_token", "mask_token"), optional(_PIECE)),
    },
    only=True,
)


@dataclasses.dataclass
class Parts:
    """The parts of a definition. Of `merges` and `pieces`, one is None."""

    vocabulary: list[str]
    ids: dict[str, int]
    model_ids: dict[str, int]  # without added tokens
    merges: list[tuple[str, str]] | None
    pieces: list[tuple[str, float]] | None
    unk_id: int | None
    unk_token: str | None
    normalizer: dict | None
    add_prefix_space: bool
    split_at_white_space: bool
    trim_offsets: bool
    added_tokens: list[dict[str, Any]]
    cls_token: str
    sep_token: str
    separators: int
    has_segments: bool


def read(path: str | os.PathLike) -> dict[str, Any]:
    """Reads a `tokenizer.json`.

    Raises:
        DataError: If it cannot be read, or its values are of wrong types.
    """
    return read_json(path, _DEFINITION, DataError, most_containers=MOST_CONTAINERS)


def parse(definition: dict[str, Any]) -> Parts:
    """Returns the parts of a definition.

    Raises:
        DataError: If it is inconsistent.
        ConfigError: If a part of it is not supported.
    """
    check(definition, _DEFINITION, None, DataError)
    model = definition["model"]
    is_bpe = model.get("type", "BPE" if "merges" in model else "Unigram") == "BPE"
    check(model, _BPE if is_bpe else _UNIGRAM, "the model of the tokenizer", DataError)
    merges = pieces = unk_id = None
    if is_bpe:
        model_ids, unk_token = model["vocab"], model.get("unk_token")
        merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
        wrong = next((m for m in merges if len(m) != 2 or not all(m)), None)
        if wrong is not None:
            raise DataError(f"Every merge must have two pieces. Received: {wrong!r:.200}.")
    else:
        pieces, unk_id = [tuple(piece) for piece in model["vocab"]], model["unk_id"]
        model_ids = {piece: index for index, (piece, _) in enumerate(pieces)}
        if unk_id >= len(pieces):
            raise DataError(f"`unk_id` must be below {len(pieces)}. Received: unk_id={unk_id}.")
        unk_token = pieces[unk_id][0]
    ids, added = dict(model_ids), []
    for token in definition.get("added_tokens") or ():
        if ids.setdefault(token["content"], token["id"]) != token["id"]:
            raise DataError(
                f"An added token must have the id of its piece, {ids[token['content']]}. "
                f"Received: {token!r:.200}."
            )
        flags = {flag: token.get(flag, False) for flag in ("lstrip", "rstrip", "special")}
        normalized = token.get("normalized", not flags["special"])
        added.append(
            {**flags, "normalized": normalized, **{k: token[k] for k in ("id", "content")}}
        )
    return Parts(
        vocabulary=_vocabulary(ids, None if is_bpe else pieces),
        ids=ids,
        model_ids=model_ids,
        merges=merges,
        pieces=pieces,
        unk_id=unk_id,
        unk_token=unk_token,
        normalizer=definition.get("normalizer"),
        added_tokens=added,
        **_pre_tokenizer(definition.get("pre_tokenizer"), is_bpe),
        **_post_processor(definition.get("post_processor"), ids),
    )


def _vocabulary(ids: dict[str, int], pieces: list[tuple[str, float]] | None) -> list[str]:
    by_id = {index: piece for index, (piece, _) in enumerate(pieces or ())}
    by_id |= {index: piece for piece, index in ids.items()}
    if sorted(by_id) != list(range(len(by_id))) or (pieces is None and len(by_id) < len(ids)):
        raise DataError(
            f"The tokenizer must have the ids 0 to {len(ids) - 1}, each once. Received: "
            f"{len(by_id)} different ids up to {max(by_id)}."
        )
    return [by_id[index] for index in range(len(by_id))]


def _pre_tokenizer(step: dict | None, is_bpe: bool) -> dict[str, bool]:
    parts = flat(step, "pretokenizers")
    kinds = [part.get("type") for part in parts]
    last = parts[-1] if parts else {}
    prefix = last.get("add_prefix_space", True)
    if kinds == ["ByteLevel"] and is_bpe and last.get("use_regex", True) is True:
        return {"add_prefix_space": bool(prefix), "split_at_white_space": False}
    scheme = last.get("prepend_scheme", "always" if prefix else "never")
    is_plain = last.get("replacement") == "▁" and last.get("split", True) is True
    if is_plain and not is_bpe and kinds in (["Metaspace"], ["WhitespaceSplit", "Metaspace"]):
        if scheme in ("always", "never"):
            return {"add_prefix_space": scheme == "always", "split_at_white_space": len(kinds) > 1}
    raise ConfigError(
        "`pre_tokenizer` must be ByteLevel with its pattern for byte pairs, or for a Unigram model "
        'Metaspace, also after WhitespaceSplit, with "▁" before all words or none. '
        f"Received: pre_tokenizer={step!r:.300}."
    )


def _post_processor(step: dict | None, ids: dict[str, int]) -> dict[str, Any]:
    """Returns the special tokens, and how pairs are joined."""
    found: dict[str, Any] = {"trim_offsets": False}
    for part in flat(step, "processors"):
        kind = part.get("type")
        if kind == "ByteLevel":
            found["trim_offsets"] = part.get("trim_offsets", True) is True
        elif kind in ("RobertaProcessing", "BertProcessing"):
            names = object_of(dict.fromkeys(("cls", "sep"), list_of(_PIECE_OR_ID, 2, 2)))
            check(part, names, "`post_processor`", DataError)
            is_roberta = kind == "RobertaProcessing"
            found |= {"cls_token": part["cls"][0], "sep_token": part["sep"][0]}
            found |= {"separators": 1 + is_roberta, "has_segments": not is_roberta}
            found["trim_offsets"] |= is_roberta and part.get("trim_offsets", True) is True
        elif kind == "TemplateProcessing":
            found |= _template(part)
        else:
            found = {}
            break
    tokens = [found.get("cls_token"), found.get("sep_token")]
    if not all(isinstance(token, str) and token in ids for token in tokens):
        raise ConfigError(
            "`post_processor` must be RobertaProcessing, BertProcessing or TemplateProcessing that "
            "puts one known token before a text, one after it, and one or more between two. "
            f"Received: post_processor={step!r:.500}."
        )
    return found


def _template(step: dict) -> dict[str, Any]:
    item = object_of({"id": _PIECE, "type_id": integer(0, 1)})
    kinds = dict.fromkeys(("SpecialToken", "Sequence"), may_lack(item))
    items = list_of(object_of(kinds, only=True), most=20)
    check(step, object_of({"single": items, "pair": items}), "`post_processor`", DataError)
    single, pair = ([next(iter(i.items())) for i in step[key] if i] for key in ("single", "pair"))
    names = [None if kind == "Sequence" else value["id"] for kind, value in pair]
    if [kind for kind, _ in single] != ["SpecialToken", "Sequence", "SpecialToken"]:
        return {}
    cls, sep = single[0][1]["id"], single[2][1]["id"]
    separators = len(names) - 4
    if separators < 1 or names != [cls, None, *[sep] * separators, None, sep]:
        return {}
    has_segments = pair[-1][1]["type_id"] == 1
    types = [value["type_id"] for _, value in pair]
    first = 2 + separators
    require(
        types == [0] * first + [int(has_segments)] * 2,
        "must give all tokens of the second segment one type",
        post_processor=step,
    )
    return {
        "cls_token": cls,
        "sep_token": sep,
        "separators": separators,
        "has_segments": has_segments,
    }


def flat(step: dict | None, key: str) -> list[dict[str, Any]]:
    """Returns the steps of a Sequence, which are below `key`, or the only step.

    Raises:
        ConfigError: If they are not objects.
    """
    if step is None:
        return []
    if step.get("type") != "Sequence":
        return [step]
    check(step, object_of({key: list_of(OBJECT)}), "a Sequence of the tokenizer", ConfigError)
    return [inner for part in step[key] for inner in flat(part, key)]


def complete(definition: dict[str, Any]) -> dict[str, Any]:
    """Returns a definition with all keys that Hugging Face's reader needs."""
    keys = ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    return {"version": "1.0", "added_tokens": [], **dict.fromkeys(keys), **definition}
