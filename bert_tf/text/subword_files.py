"""Reads the tokenizer files of RoBERTa, XLM-RoBERTa, CamemBERT and ALBERT as a `tokenizer.json`.

Reference: transformers `convert_slow_tokenizer.py`.
"""

import base64
import os
from typing import Any

from bert_tf.errors import DataError
from bert_tf.files import recover
from bert_tf.json_files import read_bytes, read_json
from bert_tf.json_schema import FLAG, integer, mapping_of, object_of, optional, text
from bert_tf.text import subword_definition, tokenizer_files
from bert_tf.text.sentencepiece_model import read_model

# sentencepiece_model.proto, SentencePiece.Type.
_CONTROL, _USER_DEFINED = 3, 4
# A file, its reader, and the files of the same tokenizer that it needs.
BYTE_PAIR_FILES = ("vocab.json", "merges.txt")
XLM_ROBERTA_FILE, ALBERT_FILE = "sentencepiece.bpe.model", "spiece.model"
_OPTIONS = object_of(
    dict.fromkeys(("do_lower_case", "keep_accents", "add_prefix_space"), optional(FLAG))
)
_MODEL_TYPE = object_of({"model_type": optional(text())})


def read(directory: str | os.PathLike, definition: dict | None = None) -> dict[str, Any]:
    """Returns the constructor arguments of `SubwordTokenizer` that a directory sets.

    `definition` is the content of `tokenizer.json`, if it has been read.

    Raises:
        DataError: If there is no tokenizer, or a file cannot be read.
        ConfigError: If the files are of another kind of tokenizer.
        CheckpointError: If an interrupted save in the directory cannot be undone.
    """
    recover(directory)

    def path(name: str) -> str:
        return os.path.join(directory, name)

    def exists(name: str) -> bool:
        return os.path.exists(path(name))

    options: dict[str, Any] = {}
    found: dict[str, Any] = {}
    if exists(tokenizer_files.CONFIG_FILE):
        options = read_json(path(tokenizer_files.CONFIG_FILE), _OPTIONS, DataError)
        arguments = tokenizer_files.config_options(path(tokenizer_files.CONFIG_FILE))
        kept = ("max_length", "truncation_side", "errors", "split_special_tokens")
        kept += ("unk_token", "pad_token", "mask_token")
        found = {name: value for name, value in arguments.items() if name in kept}
    if definition is not None:
        pass
    elif exists(tokenizer_files.TOKENIZER_FILE):
        definition = subword_definition.read(path(tokenizer_files.TOKENIZER_FILE))
    elif all(map(exists, BYTE_PAIR_FILES)):
        definition = _roberta(*map(path, BYTE_PAIR_FILES), bool(options.get("add_prefix_space")))
    elif exists(XLM_ROBERTA_FILE):
        kind = str(options.get("tokenizer_class", "")).lower()
        if exists("config.json"):
            kind += read_json(path("config.json"), _MODEL_TYPE, DataError).get("model_type") or ""
        definition = _fairseq(path(XLM_ROBERTA_FILE), "camembert" in kind)
    elif exists(ALBERT_FILE):
        accents = options.get("keep_accents") is True
        definition = _albert(path(ALBERT_FILE), options.get("do_lower_case") is not False, accents)
    else:
        names = (tokenizer_files.TOKENIZER_FILE, " and ".join(BYTE_PAIR_FILES))
        raise DataError(
            f"`directory` must contain {', '.join((*names, XLM_ROBERTA_FILE))} or {ALBERT_FILE}. "
            f"Received: directory={os.fspath(directory)!r}, which has none of them."
        )
    return {**found, "definition": definition}


def config(tokenizer) -> dict[str, Any]:
    """Returns the `tokenizer_config.json` of a `SubwordTokenizer`."""
    names = ("unk", "pad", "cls", "sep", "mask")
    tokens = {f"{name}_token": getattr(tokenizer, f"{name}_token") for name in names}
    content = {
        **{name: token for name, token in tokens.items() if token is not None},
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokenizer.max_length or int(1e30),
        "errors": tokenizer.errors,
        "split_special_tokens": tokenizer.split_special_tokens,
    }
    if tokenizer.truncation_side == "middle":  # Hugging Face refuses unknown values
        return {**content, "truncates_middle": True}
    return {**content, "truncation_side": tokenizer.truncation_side}


def _special(pieces: dict[str, int], *tokens: str, mask: str | None = None) -> list[dict]:
    """Returns added tokens, in the order of their ids; `mask` takes the space before it."""
    missing = [token for token in (*tokens, mask) if token not in pieces and token]
    if missing:
        raise DataError(f"The vocabulary must contain {missing}. Received: {len(pieces)} pieces.")
    names = sorted({*tokens, *([mask] if mask else [])}, key=pieces.get)
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    return [
        {"id": pieces[name], "content": name, "lstrip": name == mask, **flags} for name in names
    ]


def _roberta(vocabulary: str, merges: str, add_prefix_space: bool) -> dict[str, Any]:
    pieces = read_json(vocabulary, mapping_of(integer(), least=1), DataError)
    try:
        lines = read_bytes(merges).decode("utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{merges} must be a file in UTF-8. Received: {error}.") from None
    lines = [line.removesuffix("\r") for line in lines]
    pairs = [line for line in lines if line and not line.startswith("#version")]
    special = _special(pieces, "<s>", "<pad>", "</s>", "<unk>", mask="<mask>")
    flags = {"trim_offsets": True, "add_prefix_space": add_prefix_space}
    ends = {"sep": ["</s>", pieces["</s>"]], "cls": ["<s>", pieces["<s>"]]}
    return {
        "added_tokens": special,
        "pre_tokenizer": {"type": "ByteLevel", **flags, "use_regex": True},
        "post_processor": {"type": "RobertaProcessing", **ends, **flags},
        "decoder": {"type": "ByteLevel", **flags, "use_regex": True},
        "model": {"type": "BPE", "vocab": pieces, "merges": pairs, "unk_token": None},
    }


def _fairseq(path: str, is_camembert: bool) -> dict[str, Any]:
    """The special tokens of fairseq are before the pieces of sentencepiece, and `<mask>` after."""
    model = read_model(path)
    if is_camembert:
        names = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>")
        pieces = [*((name, 0.0) for name in names), ("<unk>NOTUSED", -100.0), *model["pieces"][1:]]
    else:
        names = ("<s>", "<pad>", "</s>", "<unk>")
        pieces = [*((name, 0.0) for name in names), *model["pieces"][3:]]
    pieces.append(("<mask>", 0.0))
    collapse = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    normalizers = [*_precompiled(model), strip, collapse]
    return _unigram(model, pieces, 3, normalizers, ("<s>", "</s>", "<mask>"), names, 2)


def _albert(path: str, lowercase: bool, keep_accents: bool) -> dict[str, Any]:
    model = read_model(path)
    # Matches transformers: pieces such as "9," are made too unlikely to be used.
    pieces = [
        (piece, score - 100 if piece[-2:-1].isdigit() and piece[-1:] == "," else score)
        for piece, score in model["pieces"]
    ]
    quotes = [
        {"type": "Replace", "pattern": {"String": quote}, "content": '"'} for quote in ("``", "''")
    ]
    accents = [] if keep_accents else [{"type": "NFKD"}, {"type": "StripAccents"}]
    lower = [{"type": "Lowercase"}] if lowercase else []
    collapse = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    normalizers = [*quotes, *accents, *lower, *_precompiled(model), collapse]
    special, names = ("[CLS]", "[SEP]", "[MASK]"), ("<pad>", "<unk>")
    return _unigram(model, pieces, model["unk_id"], normalizers, special, names, 1)


def _precompiled(model: dict[str, Any]) -> list[dict[str, str]]:
    charsmap = base64.b64encode(model["charsmap"]).decode()
    return [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []


def _unigram(model, pieces, unk_id, normalizers, special, names, separators) -> dict[str, Any]:
    """Returns the definition of a Unigram model; `special` are its `cls`, `sep` and `mask`."""
    cls, sep, mask = special
    ids = {piece: index for index, (piece, _) in enumerate(pieces)}
    tokens = _special(ids, cls, sep, *names, mask=mask)
    known = {token["content"] for token in tokens}
    for (piece, _), kind in zip(model["pieces"], model["types"]):
        if kind in (_CONTROL, _USER_DEFINED) and piece in ids and piece not in known:
            tokens.append(_special(ids, piece)[0] | {"special": kind == _CONTROL})

    def item(token: str, second: int) -> dict:
        return {"SpecialToken": {"id": token, "type_id": second if separators == 1 else 0}}

    def text_of(name: str, second: int) -> dict:
        return {"Sequence": {"id": name, "type_id": second if separators == 1 else 0}}

    single = [item(cls, 0), text_of("A", 0), item(sep, 0)]
    pair = [*single, *[item(sep, 0)] * (separators - 1), text_of("B", 1), item(sep, 1)]
    described = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in (cls, sep)}
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    return {
        "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": space,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": pair,
            "special_tokens": described,
        },
        "decoder": space,
        "model": {
            "type": "Unigram",
            "unk_id": unk_id,
            "vocab": [list(piece) for piece in pieces],
            "byte_fallback": False,
        },
    }
