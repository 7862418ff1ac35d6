"""Reads the tokenizer files of models that have no `tokenizer.json` in its form.

These are RoBERTa, DeBERTa, XLM-RoBERTa, CamemBERT, ALBERT, DeBERTa-v2 and RemBERT.

Reference: transformers 4 `convert_slow_tokenizer.py`. (transformers 5 ignores the normalization in
`spm.model`, with which DeBERTa-v2 and v3 were trained, and joins pairs of DeBERTa as RoBERTa does.)
"""

import base64
import os
from typing import Any

from bert_tf.base.files import recover
from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import FLAG, integer, mapping_of, object_of, optional, text
from bert_tf.errors import ConfigError, DataError, user_error
from bert_tf.text import subword_definition, tokenizer_config, tokenizer_files
from bert_tf.text.sentencepiece_model import read_model
from bert_tf.text.tokenizer_json import row_options
from bert_tf.text.vocabulary import read_lines

# sentencepiece_model.proto, SentencePiece.Type.
_CONTROL, _USER_DEFINED = 3, 4
_FLAGS = ("do_lower_case", "keep_accents", "add_prefix_space")
_CLASSES = dict.fromkeys(("tokenizer_class", "model_type"), optional(text()))
# The options of each file that say how the others are read.
_OPTIONS = {
    "config.json": _CLASSES,
    tokenizer_config.CONFIG_FILE: {**_CLASSES, **dict.fromkeys(_FLAGS, optional(FLAG))},
}
_MASKS = ("<mask>", "[MASK]")  # which take the space before them
# How pairs are joined: `<s> first </s></s> second </s>` and `[CLS] first [SEP] second [SEP]`.
_ROBERTA = {"type": "RobertaProcessing", "trim_offsets": False, "add_prefix_space": False}
_BERT = {"type": "BertProcessing"}
_ALBERT = ("[CLS]", "[SEP]", "[MASK]", "<pad>", "<unk>")
ALBERT_TOKENS = (*_ALBERT[3:], *_ALBERT[:3])  # in the order of their ids


def read(directory: str | os.PathLike, definition: Any = None) -> dict[str, Any]:
    """Returns the constructor arguments of `SubwordTokenizer` that a directory sets.

    `definition` is the content of `tokenizer.json`, or its path; None: that of the directory.
    Raises `DataError` if there is no tokenizer, or a file cannot be read. Raises `ConfigError` if
    the configuration says what is not supported. Raises `CheckpointError` if an interrupted save in
    the directory cannot be undone.
    """
    recover(directory)
    definition = read_definition(directory) if definition is None else definition
    if definition is None:
        files = (tokenizer_files.TOKENIZER_FILE, *map(" and ".join, _READERS))
        expected = f"contain {', '.join(files[:-1])} or {files[-1]}"
        received = f"directory={os.fspath(directory)!r}, which has none of them."
        raise user_error("`directory`", expected, received, DataError)
    config = tokenizer_config.read(directory, may_add_ends=True)
    found = {**row_options(definition), **tokenizer_config.options(config)}
    if "segmenter" in found:
        expected = "be of WordPiece for RoFormerTokenizer"
        received = f"byte pairs or a Unigram model in {os.fspath(directory)}."
        raise user_error("The tokenizer's model", expected, received, ConfigError)
    found = {name: value for name, value in found.items() if name in subword_definition.OPTIONS}
    given = definition.get("added_tokens") or []
    known = {token["content"] for token in given}
    # A token of both has the flags of tokenizer.json.
    others = tokenizer_files.added_tokens(directory, config, {})
    others = [token for name, token in others.items() if name not in known]
    if unknown := [token["content"] for token in others if "id" not in token]:
        raise ConfigError(
            f"The definition of the tokenizer of {os.fspath(directory)} must have all added "
            f"tokens of {tokenizer_config.CONFIG_FILE}. Received: {unknown!s:.200} in addition."
        )
    definition = {**definition, "added_tokens": [*given, *others]}
    first = definition.get("pre_tokenizer") or {}
    if first.get("type") == "ByteLevel" and config.get("add_prefix_space") is not None:
        # Matches transformers: the configuration overrides the definition.
        first = {**first, "add_prefix_space": config["add_prefix_space"]}
        definition = {**definition, "pre_tokenizer": first}
    return {**found, "definition": definition}


def read_definition(directory: str | os.PathLike) -> dict[str, Any] | None:
    """Returns the `tokenizer.json` of a directory, or what other files of it say in that form.

    It may be that of another kind of tokenizer (`subword_definition.is_subword`). None if there is
    no file. Raises `DataError` if a file cannot be read, and `CheckpointError` if an interrupted
    save in the directory cannot be undone.
    """
    recover(directory)
    path = os.path.join(directory, tokenizer_files.TOKENIZER_FILE)
    if os.path.exists(path):
        return subword_definition.read(path, any_kind=True)
    for names, reader in _READERS.items():
        paths = [os.path.join(directory, name) for name in names]
        if all(map(os.path.exists, paths)):
            return reader(*paths, _options(directory))
    return None


def _options(directory) -> dict[str, Any]:
    options = {}
    for name, schema in _OPTIONS.items():
        content = tokenizer_files.read_if_exists(directory, name, object_of(schema))
        options.update({key: content[key] for key in schema if key in content})
    return options


def _special(pieces: dict[str, int], *tokens: str) -> list[dict]:
    """Returns added tokens, in the order of their ids."""
    missing = [token for token in tokens if token not in pieces]
    if missing:
        raise DataError(f"The vocabulary must contain {missing}. Received: {len(pieces)} pieces.")
    flags = {"single_word": False, "rstrip": False, "normalized": False, "special": True}
    return [
        {"id": pieces[name], "content": name, "lstrip": name in _MASKS, **flags}
        for name in sorted(tokens, key=pieces.get)
    ]


def _ends(pieces: dict[str, int], cls: str, sep: str) -> dict[str, list]:
    return {"sep": [sep, pieces[sep]], "cls": [cls, pieces[cls]]}


def _roberta(vocabulary: str, merges: str, options: dict[str, Any]) -> dict[str, Any]:
    pieces = read_json(vocabulary, mapping_of(integer(), least=1), DataError)
    lines = read_lines(merges, "a file of merges")
    pairs = [line for line in lines if line and not line.startswith("#version")]
    flags = {"trim_offsets": True, "add_prefix_space": options.get("add_prefix_space") is True}
    byte_level = {"type": "ByteLevel", **flags, "use_regex": True}
    special, processor = ("<s>", "</s>", "<pad>", "<unk>", "<mask>"), {**_ROBERTA, **flags}
    if "[CLS]" in pieces:  # DeBERTa
        special, processor = ("[CLS]", "[SEP]", "[PAD]", "[UNK]", "[MASK]"), _BERT
    return {
        "added_tokens": _special(pieces, *special),
        "pre_tokenizer": byte_level,
        "post_processor": {**processor, **_ends(pieces, *special[:2])},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": pieces, "merges": pairs, "unk_token": None},
    }


def _fairseq(path: str, options: dict[str, Any]) -> dict[str, Any]:
    """Puts fairseq's special tokens before the pieces of sentencepiece, `<mask>` after them."""
    model = read_model(path)
    kinds = (str(options.get(key)).lower() for key in ("tokenizer_class", "model_type"))
    if any("camembert" in kind for kind in kinds):
        names = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>")
        pieces = [*((name, 0.0) for name in names), ("<unk>NOTUSED", -100.0), *model["pieces"][1:]]
    else:
        names = ("<s>", "<pad>", "</s>", "<unk>")
        pieces = [*((name, 0.0) for name in names), *model["pieces"][3:]]
    pieces.append(("<mask>", 0.0))
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    normalizers = [*_precompiled(model), strip, _replaces("▁", Regex=" {2,}")]
    special = ("<s>", "</s>", "<mask>", *names)
    return _unigram(model, pieces, 3, special, normalizers, _ROBERTA)


def _albert(path: str, options: dict[str, Any]) -> dict[str, Any]:
    model = read_model(path)
    # Matches transformers: pieces such as "9," are made too unlikely to be used.
    pieces = [
        (piece, score - 100 if piece[-2:-1].isdigit() and piece[-1:] == "," else score)
        for piece, score in model["pieces"]
    ]
    normalizers = [*albert_normalizers(options), *_precompiled(model), _ONE_SPACE]
    return _unigram(model, pieces, model["unk_id"], _ALBERT, normalizers, _BERT)


def albert_normalizers(options: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns what ALBERT's tokenizer does before the normalization of its model file."""
    return [*_QUOTES, *_folds(options, keep_accents=False, do_lower_case=True)]


def _rembert(path: str, options: dict[str, Any]) -> dict[str, Any]:
    model = read_model(path)
    folds = _folds(options, keep_accents=True, do_lower_case=False)
    normalizers = [*_QUOTES, _ONE_SPACE, *folds, *_precompiled(model)]
    return _unigram(model, model["pieces"], model["unk_id"], _ALBERT, normalizers, _BERT)


def _deberta_v2(path: str, options: dict[str, Any]) -> dict[str, Any]:
    model = read_model(path)
    folds = _folds(options, keep_accents=True, do_lower_case=False)
    strip = {"type": "Strip", "strip_left": True, "strip_right": True}
    normalizers = [*folds, strip, *_precompiled(model), _ONE_SPACE]
    special = ("[CLS]", "[SEP]", "[PAD]", "[UNK]")
    made = _unigram(model, model["pieces"], model["unk_id"], special, normalizers, _BERT)
    # Matches transformers: `[UNK]` is found after normalization, and `[MASK]`, which the model file
    # lacks, does not take the space before it.
    tokens = {token["content"]: token for token in made["added_tokens"]}
    tokens["[UNK]"]["normalized"] = True
    mask = {**tokens["[CLS]"], "id": len(model["pieces"]), "content": "[MASK]"}
    return {**made, "added_tokens": [*({"[MASK]": mask} | tokens).values()]}


def _folds(options: dict[str, Any], **defaults: bool) -> list[dict[str, str]]:
    """Returns the steps that remove accents and capitals, as the options or else `defaults` say."""
    given = {name: value for name, value in options.items() if value is not None}
    flags = {**defaults, **given}
    steps = [] if flags["keep_accents"] else [{"type": "NFKD"}, {"type": "StripAccents"}]
    return steps + [{"type": "Lowercase"}] * flags["do_lower_case"]


def _replaces(content: str, **pattern: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": pattern, "content": content}


def _precompiled(model: dict[str, Any]) -> list[dict[str, str]]:
    charsmap = base64.b64encode(model["charsmap"]).decode()
    return [{"type": "Precompiled", "precompiled_charsmap": charsmap}] if charsmap else []


def _unigram(model, pieces, unk_id, special, normalizers, processor) -> dict[str, Any]:
    """Returns the definition of a Unigram model; `special` begins with its `cls` and `sep`."""
    ids = {piece: index for index, (piece, _) in enumerate(pieces)}
    tokens = _special(ids, *dict.fromkeys(special))
    for (piece, _), kind in zip(model["pieces"], model["types"]):
        if kind in (_CONTROL, _USER_DEFINED) and piece in ids and piece not in special:
            tokens.append(_special(ids, piece)[0] | {"special": kind == _CONTROL})
    space = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}
    vocabulary = [list(piece) for piece in pieces]
    return {
        "added_tokens": tokens,
        "normalizer": {"type": "Sequence", "normalizers": normalizers},
        "pre_tokenizer": space,
        "post_processor": {**processor, **_ends(ids, *special[:2])},
        "decoder": space,
        "model": {"type": "Unigram", "unk_id": unk_id, "vocab": vocabulary, "byte_fallback": False},
    }


_QUOTES = _replaces('"', String="``"), _replaces('"', String="''")
_ONE_SPACE = _replaces(" ", Regex=" {2,}")
# The files of each form, of which a directory needs all, and the function that reads them.
_READERS = {
    ("vocab.json", "merges.txt"): _roberta,
    ("sentencepiece.bpe.model",): _fairseq,
    ("spiece.model",): _albert,
    ("spm.model",): _deberta_v2,
    ("sentencepiece.model",): _rembert,
}
FILES = tuple(names[0] for names in _READERS)  # the first file of each form
