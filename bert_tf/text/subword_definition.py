"""Reads and checks a Hugging Face `tokenizer.json`, which may come from a stranger.

Reference: huggingface/tokenizers `src/tokenizer/serialization.rs`.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import (
    ANYTHING,
    FLAG,
    OBJECT,
    Kind,
    check,
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
from bert_tf.errors import ConfigError, DataError, require, user_error
from bert_tf.text.sentencepiece_model import MOST_PIECES
from bert_tf.text.tokenizer_config import COMMON_ARGUMENTS
from bert_tf.text.tokenizer_json import (
    MOST_ADDED_TOKENS,
    MOST_CONTAINERS,
    PIECE,
    ROWS,
    complete_step,
    flat,
    special_tokens,
    with_flags,
)
from bert_tf.text.vocabulary import in_order

_CHARSMAP_LENGTH = 50_000_000
# The average length of a Unigram model's pieces; sentencepiece makes no longer ones by itself.
_MOST_PIECE_CHARS = 16
_MOST_CHARS = 1_000_000  # of all its pieces, in any case; each takes up to 40 bytes in memory
_PAIR, _SCORE = list_of(ANYTHING, least=2, most=2), number()
_WRITTEN_MERGE = text(most=2001)
_SCORED = Kind(
    "a piece and its score",
    lambda value: _PAIR.fits(value) and PIECE.fits(value[0]) and _SCORE.fits(value[1]),
)
_MERGE = Kind(  # one function: a model has half a million of them
    "two pieces, in a list or with a space between them",
    lambda value: _WRITTEN_MERGE.fits(value) or (_PAIR.fits(value) and all(map(PIECE.fits, value))),
)
_NOTHING = optional(one_of("", False, 0, 0.0))
_BPE = object_of(
    {
        "vocab": mapping_of(integer(), least=1),
        "merges": list_of(_MERGE, most=MOST_PIECES),
        "unk_token": optional(PIECE),
        **dict.fromkeys(("dropout", "continuing_subword_prefix", "end_of_word_suffix"), _NOTHING),
        **dict.fromkeys(("byte_fallback", "ignore_merges"), optional(FLAG)),
    }
)
_UNIGRAM = object_of(
    {
        "vocab": list_of(_SCORED, least=1, most=MOST_PIECES),
        "unk_id": integer(),
        "byte_fallback": _NOTHING,
    }
)
_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
_LLAMA_3 += r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA_3 = {
    "type": "Split",
    "pattern": {"Regex": _LLAMA_3},
    "behavior": "Isolated",
    "invert": False,
}
# Gemma's, after each space.
_AFTER_SPACES = {
    "type": "Split",
    "pattern": {"String": " "},
    "behavior": "MergedWithPrevious",
    "invert": False,
}
# The keys of steps, and those of their Sequences.
_STEPS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
_STEP = object_of({"type": text(), "precompiled_charsmap": optional(text(_CHARSMAP_LENGTH))})
_ADDED_TOKEN = object_of(
    {
        "id": integer(),
        "content": Kind("a string of 1 to 200 characters", lambda v: text(200).fits(v) and v),
        "single_word": may_lack(one_of(False)),
        **dict.fromkeys(("lstrip", "rstrip", "normalized", "special"), may_lack(FLAG)),
    }
)
_CONTENT = object_of({"model": optional(object_of({"type": optional(text())}))})
_DEFINITION = object_of(
    {
        "model": object_of({"type": may_lack(one_of("BPE", "Unigram"))}),
        "added_tokens": optional(list_of(_ADDED_TOKEN, most=MOST_ADDED_TOKENS)),
        **dict.fromkeys(_STEPS, optional(_STEP)),
        **ROWS,
    }
)
# The arguments of `SubwordTokenizer` that `tokenizer_config.json` has too.
OPTIONS = dict.fromkeys(("unk_token", "pad_token", "mask_token"), optional(PIECE))
OPTIONS |= COMMON_ARGUMENTS
# The result of `SubwordTokenizer.get_config`, as model files store it.
ARGUMENTS = object_of({**OPTIONS, "definition": OBJECT}, only=True)


@dataclasses.dataclass
class Parts:
    """The parts of a definition."""

    vocabulary: list[str]
    ids: dict[str, int]
    model: dict[str, Any]
    merges: list[tuple[str, str]] | None  # None for a Unigram model
    byte_fallback: bool
    unk_token: str | None
    add_prefix_space: bool
    split_at_white_space: bool
    splits_like_llama: bool
    trim_offsets: bool
    added_tokens: list[dict[str, Any]]
    cls_token: str
    sep_token: str
    separators: int
    has_segments: bool
    repeats_cls: bool

    @property
    def is_byte_level(self) -> bool:
        """Whether each character of the pieces is a byte. If not, `▁` is a space."""
        return self.merges is not None and not self.byte_fallback


def read(path: str | os.PathLike, any_kind: bool = False) -> dict[str, Any]:
    """Reads a `tokenizer.json`, with `any_kind` also that of another kind of tokenizer.

    Raises `DataError` if it cannot be read, or its values are of wrong types.
    """
    content = read_json(path, _CONTENT, DataError, most_containers=MOST_CONTAINERS)
    if is_subword(content) or not any_kind:
        check(content, _DEFINITION, path, DataError)
    return content


def is_subword(definition: dict[str, Any]) -> bool:
    """Returns whether a definition is that of byte pairs or of a Unigram model."""
    model = definition.get("model") or {}
    return model.get("type") in ("BPE", "Unigram") or "merges" in model


def parse(definition: dict[str, Any]) -> Parts:
    """Returns the parts of a definition.

    Raises `DataError` if it is inconsistent, and `ConfigError` if a part of it is not supported.
    """
    check(definition, _DEFINITION, None, DataError)
    model = definition["model"]
    is_bpe = model.get("type", "BPE" if "merges" in model else "Unigram") == "BPE"
    check(model, _BPE if is_bpe else _UNIGRAM, "the model of the tokenizer", DataError)
    merges = None
    byte_fallback = is_bpe and model.get("byte_fallback") is True
    if is_bpe:
        ids, unk_token = dict(model["vocab"]), model.get("unk_token")
        rule = "must be false with `byte_fallback`"
        merges_all = not (byte_fallback and model.get("ignore_merges"))
        require(merges_all, rule, ConfigError, ignore_merges=model.get("ignore_merges"))
        merges = [tuple(m.split(" ") if isinstance(m, str) else m) for m in model["merges"]]
        wrong = next((m for m in merges if len(m) != 2 or not all(m)), None)
        if wrong is not None:
            raise DataError(f"Every merge must have two pieces. Received: {wrong!r:.200}.")
    else:
        pieces, unk_id = model["vocab"], model["unk_id"]
        ids = {piece: index for index, (piece, _) in enumerate(pieces)}
        require(unk_id < len(pieces), f"must be below {len(pieces)}", DataError, unk_id=unk_id)
        unk_token = pieces[unk_id][0]
        most = max(_MOST_CHARS, _MOST_PIECE_CHARS * len(pieces))
        if (num_chars := sum(len(piece) for piece, _ in pieces)) > most:
            raise DataError(
                f"The {len(pieces):,} pieces of the tokenizer must have at most {most:,} "
                f"characters. Received: {num_chars:,}."
            )
    # A Unigram model may repeat pieces. The last one has the id.
    listed = [] if is_bpe else [piece for piece, _ in model["vocab"]]
    added = []
    for token in definition.get("added_tokens") or ():
        known = ids.setdefault(token["content"], token["id"])
        if known != token["id"] or (known < len(listed) and listed[known] != token["content"]):
            expected = f"have the id of its piece, {known}, or an id of its own"
            raise user_error("An added token", expected, f"{token!r:.200}.", DataError)
        added.append(with_flags(token))
    others = [(index, piece) for piece, index in ids.items() if index >= len(listed)]
    others = in_order(dict(others), len(others), "The tokenizer", len(listed))
    return Parts(
        vocabulary=listed + others,
        ids=ids,
        model=model,
        merges=merges,
        byte_fallback=byte_fallback,
        unk_token=unk_token,
        added_tokens=added,
        **_pre_tokenizer(definition.get("pre_tokenizer"), is_bpe, byte_fallback),
        **special_tokens(definition.get("post_processor"), ids, may_repeat=True),
    )


def _pre_tokenizer(step: dict | None, is_bpe: bool, byte_fallback: bool) -> dict[str, bool]:
    parts = flat(step, "pretokenizers")
    if byte_fallback and parts in ([], [_AFTER_SPACES]):
        names = ("add_prefix_space", "split_at_white_space", "splits_like_llama")
        return dict(zip(names, (False, bool(parts), False)))
    kinds = [part.get("type") for part in parts]
    last = parts[-1] if parts else {}
    is_llama = parts[:-1] == [_LLAMA_3]
    allowed = [["Metaspace"], ["WhitespaceSplit", "Metaspace"]]
    if is_bpe:
        allowed = [["Split", "ByteLevel"] if is_llama else ["ByteLevel"]]
    scheme = "always" if last.get("add_prefix_space", True) else "never"
    scheme = last.get("prepend_scheme", scheme)
    fits = kinds in allowed and scheme in (("never",) if is_llama else ("always", "never"))
    fits &= last.get("use_regex", True) is not is_llama and last.get("split", True) is True
    fits &= not byte_fallback
    if not fits or (not is_bpe and last.get("replacement") != "▁"):
        raise ConfigError(
            "`pre_tokenizer` must be for byte pairs ByteLevel with its pattern, or without it and "
            "without a prefix space after a Split by Llama 3's; with `byte_fallback` a Split after "
            "each space, or none; or for a Unigram model Metaspace, also after WhitespaceSplit, "
            'with "▁" before all words or none. '
            f"Received: pre_tokenizer={step!r:.300}."
        )
    return {
        "add_prefix_space": scheme == "always",
        "split_at_white_space": kinds[0] == "WhitespaceSplit",
        "splits_like_llama": is_llama,
    }


def complete(definition: dict[str, Any], ids: Mapping[str, int]) -> dict[str, Any]:
    """Returns a definition that `parse` accepts with all keys that Hugging Face's reader needs."""
    return {
        "version": "1.0",
        **dict.fromkeys(("truncation", "padding", "decoder")),
        **definition,
        "added_tokens": [with_flags(token) for token in definition.get("added_tokens") or ()],
        **{name: complete_step(definition.get(name), key, ids) for name, key in _STEPS.items()},
    }
