"""The files of late-interaction models: those of ColBERT, of PyLate and of sentence-transformers.

Reference: stanford-futuredata/ColBERT, `artifact.metadata`; lightonai/pylate, `models/colbert.py`;
sentence-transformers 6.2, `MultiVectorEncoder`.
"""

import logging
import os
import string
from typing import Any

from bert_tf.base.file_errors import file_error
from bert_tf.base.json_files import read_json, read_json_if_any, write_json
from bert_tf.base.json_schema import (
    FLAG,
    Kind,
    integer,
    list_of,
    mapping_of,
    may_lack,
    object_of,
    one_of,
    optional,
    text,
)
from bert_tf.models.task_files import OpenedDirectory, TaskFiles
from bert_tf.tasks.late_interaction import SPEC
from bert_tf.tasks.shared.module_files import IDENTITY, MODEL_FILE, TRANSFORMER_FILE

_logger = logging.getLogger("bert_tf")

_METADATA_FILE = "artifact.metadata"
_KERNEL = "linear.weight"

# Keys of `artifact.metadata`, our options, and what the keys may be.
_COLBERT_OPTIONS = (
    ("dim", "dim", integer(least=1)),
    ("query_maxlen", "query_max_length", integer(least=3)),
    ("doc_maxlen", "max_length", integer(least=3)),
    ("query_token_id", "query_marker", text()),
    ("doc_token_id", "document_marker", text()),
    ("attend_to_mask_tokens", "attend_to_mask_tokens", FLAG),
    ("mask_punctuation", "mask_punctuation", FLAG),
)
_ONLY = {"similarity": "cosine", "interaction": "colbert"}
_METADATA = object_of(
    {key: optional(kind) for key, _, kind in _COLBERT_OPTIONS}
    | {key: optional(one_of(value)) for key, value in _ONLY.items()}
)
# The same of PyLate's config_sentence_transformers.json, and what it takes for missing keys.
_PYLATE_OPTIONS = (
    ("query_prefix", "query_marker", text(), "[Q] "),
    ("document_prefix", "document_marker", text(), "[D] "),
    ("query_length", "query_max_length", integer(least=3), 32),
    ("document_length", "max_length", integer(least=3), 180),
    ("do_query_expansion", "query_augmentation", FLAG, True),
    ("attend_to_expansion_tokens", "attend_to_mask_tokens", FLAG, False),
    ("skiplist_words", "mask_punctuation", list_of(text()), list(string.punctuation)),
)
_NULL = may_lack(Kind("null", lambda value: value is None))
_PYLATE = object_of(
    {key: optional(kind) for key, _, kind, _ in _PYLATE_OPTIONS} | {"default_prompt_name": _NULL}
)
_PROMPTS = object_of({"prompts": optional(mapping_of(text()))})
_EXPANSION = object_of(
    {
        "strategy": one_of("fixed"),
        "attend": optional(FLAG),
        "token": optional(one_of("[MASK]")),
        "length": integer(least=3),
    }
)
_LENGTHS = object_of(
    {
        "query_length": optional(integer(least=3)),
        "document_length": optional(integer(least=3)),
        "query_expansion": optional(_EXPANSION),
    }
)
_SKIPLIST = object_of(
    {
        "skiplist_words": list_of(text()),
        "skiplist_tasks": optional(list_of(one_of("document"))),
        "keep_only_token_ids": _NULL,
    }
)
_DENSE = object_of(
    {
        "activation_function": one_of(IDENTITY),
        "bias": one_of(False),
        "use_residual": may_lack(one_of(False)),
    }
)


class LateInteractionFiles(TaskFiles):
    """`artifact.metadata` of ColBERT, and the modules of PyLate and of a `MultiVectorEncoder`."""

    names = (_METADATA_FILE,)

    def read(self, opened):
        if SPEC.architectures[0] in opened.architectures:
            return _colbert_options(opened)
        # A linear map of each token follows the Transformer, and not a pooling.
        if [kind for kind, _ in opened.modules[:2]] == ["Transformer", "Dense"]:
            return _multi_vector_options(opened)
        return None

    def write(self, model, directory, format):
        if format == "huggingface":
            _write_metadata(model, directory)


def _colbert_options(opened: OpenedDirectory) -> dict[str, Any]:
    path = os.path.join(opened.path, _METADATA_FILE)
    values = read_json_if_any(path, _METADATA)
    options = {
        ours: values[theirs]
        for theirs, ours, _ in _COLBERT_OPTIONS
        if values.get(theirs) is not None
    }
    shape = opened.source.shapes.get(_KERNEL, ())
    return {"dim": shape[0], **options} if len(shape) == 2 else options


def _multi_vector_options(opened: OpenedDirectory) -> dict[str, Any]:
    """Returns the options, and adds the weights of the Dense module to those of the encoder."""
    kinds, modules = [kind for kind, _ in opened.modules], dict(opened.modules)
    supported = {"Transformer", "Dense", "MultiVectorMask", "Normalize"}
    if len(kinds) != len(modules) or not supported.issuperset(kinds):
        expected = "be one Transformer, Dense, and perhaps MultiVectorMask and Normalize"
        raise file_error(f"`type` in modules.json of {opened.path}", expected, kinds)
    read_json(os.path.join(modules["Dense"], "config.json"), _DENSE)
    opened.add_weights(modules["Dense"])
    prompts = os.path.join(opened.path, MODEL_FILE)
    if "MultiVectorMask" in modules:
        options = _encoder_options(modules, prompts, opened.config.max_position_embeddings)
    else:
        values = read_json_if_any(prompts, _PYLATE)
        options = {
            ours: default if values.get(theirs) is None else values[theirs]
            for theirs, ours, _, default in _PYLATE_OPTIONS
        }
        options["mask_punctuation"] = _masks_punctuation(prompts, options["mask_punctuation"])
    for name in ("query_marker", "document_marker"):
        options[name] = options[name] or None
    return {"dim": opened.source.shapes.get(_KERNEL, (1,))[0], **options}


def _encoder_options(modules, prompts, longest):
    """Returns the options of a `MultiVectorEncoder`, without the size of its vectors."""
    values = read_json_if_any(prompts, _PROMPTS)
    markers = values.get("prompts") or {}
    lengths = read_json(os.path.join(modules["Transformer"], TRANSFORMER_FILE), _LENGTHS)
    expansion = lengths.get("query_expansion") or {}
    mask = os.path.join(modules["MultiVectorMask"], "config.json")
    return {
        "query_marker": markers.get("query"),
        "document_marker": markers.get("document"),
        "query_augmentation": bool(expansion),
        "attend_to_mask_tokens": bool(expansion.get("attend")),
        "query_max_length": expansion.get("length") or lengths.get("query_length") or longest,
        "max_length": lengths.get("document_length"),
        "mask_punctuation": _masks_punctuation(mask, read_json(mask, _SKIPLIST)["skiplist_words"]),
    }


def _masks_punctuation(path, skipped):
    if skipped and set(skipped) != set(string.punctuation):
        expected = "be empty or the punctuation of ASCII"
        raise file_error(f"`skiplist_words` in {path}", expected, str(skipped)[:200])
    return bool(skipped)


def _write_metadata(model, directory):
    if not model.query_augmentation or None in (model.query_marker, model.document_marker):
        _logger.warning(
            "ColBERT knows only queries with [MASK], and texts with markers. bert_tf reads "
            "query_augmentation=%s, query_marker=%r and document_marker=%r from config.json; "
            "the original program would compute other vectors.",
            model.query_augmentation,
            model.query_marker,
            model.document_marker,
        )
    values = {theirs: getattr(model, ours) for theirs, ours, _ in _COLBERT_OPTIONS}
    values["doc_maxlen"] = model.max_sequence_length
    values = {key: value for key, value in values.items() if value is not None}
    write_json(os.path.join(directory, _METADATA_FILE), {**values, **_ONLY}, sort_keys=True)
