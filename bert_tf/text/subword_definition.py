"""What a Hugging Face `tokenizer.json` says, checked: it comes from a stranger.

Reference: huggingface/tokenizers `src/tokenizer/serialization.rs`.
"""

import dataclasses
import os
from typing import Any

from bert_tf.errors import ConfigError, DataError
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
_ENDS = object_of(dict.fromkeys(("cls", "sep"), list_of(either(_PIECE, integer()), 2, 2)))
_ITEM = may_lack(object_of({"id": _PIECE, "type_id": integer(0, 1)}))
_ITEMS = list_of(object_of({"SpecialToken": _ITEM, "Sequence": _ITEM}, only=True), most=20)
_TEMPLATE = object_of({"single": _ITEMS, "pair": _ITEMS})
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
    single, pair, trims = [], [], False  # tokens (None for a text) and their types
    for part in flat(step, "processors"):
        kind = part.get("type")
        is_roberta = kind == "RobertaProcessing"
        if is_roberta or kind == "BertProcessing":
            check(part, _ENDS, "`post_processor`", DataError)
            single = [(part["cls"][0], 0), (None, 0), (part["sep"][0], 0)]
            second = int(not is_roberta)
            pair = [*single, *single[2:] * is_roberta, (None, second), (part["sep"][0], second)]
        elif kind == "TemplateProcessing":
            check(part, _TEMPLATE, "`post_processor`", DataError)
            single, pair = (
                [
                    (None if name == "Sequence" else value["id"], value["type_id"])
                    for item in part[key]
                    for name, value in item.items()
                ]
                for key in ("single", "pair")
            )
        trims |= (
            kind in ("ByteLevel", "RobertaProcessing") and part.get("trim_offsets") is not False
        )
    (cls, _), (sep, second) = (single[:1] or [("", 0)])[0], (pair[-1:] or [("", 0)])[0]
    separators = len(pair) - 4
    one = [(cls, 0), (None, 0), (sep, 0)]
    two = [*one, *one[2:] * (separators - 1), (None, second), (sep, second)]
    if (single, pair) != (one, two) or separators < 1 or not {cls, sep} <= set(ids):
        raise ConfigError(
            "`post_processor` must be RobertaProcessing, BertProcessing or TemplateProcessing that "
            "puts one known token before a text, one after it, and one or more between two. "
            f"Received: post_processor={step!r:.500}."
        )
    ends = {"cls_token": cls, "sep_token": sep, "trim_offsets": trims}
    return {**ends, "separators": separators, "has_segments": second == 1}


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
