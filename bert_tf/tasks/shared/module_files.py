"""The files of directories of sentence-transformers and PyLate: modules, length, prompts.

Reference: sentence-transformers, `modules.json`, `sentence_bert_config.json` and
`config_sentence_transformers.json` of its saved models.
"""

import os
from collections.abc import Sequence
from typing import Any

from bert_tf.base.json_files import read_json_if_any, write_json
from bert_tf.base.json_schema import Kind, integer, is_file_name, list_of, object_of, optional, text
from bert_tf.models.task_spec import PROMPT_OPTIONS

MODULES_FILE = "modules.json"
TRANSFORMER_FILE = "sentence_bert_config.json"
MODEL_FILE = "config_sentence_transformers.json"
IDENTITY = "torch.nn.modules.linear.Identity"  # the activation of a Dense module that has none

_FOLDER = Kind(
    "empty or the path of a folder in the directory",
    lambda value: (
        value == ""
        or value == "."  # model2vec's
        or (isinstance(value, str) and all(map(is_file_name, value.rstrip("/").split("/"))))
    ),
)
_MODULES = list_of(object_of({"type": text(), "path": _FOLDER}), most=100)
_TRANSFORMER = object_of({"max_seq_length": optional(integer())})
_MODEL = object_of(PROMPT_OPTIONS)


def read_modules(directory: str) -> list[tuple[str, str]]:
    """Returns the type of each module without its package, and its folder; none without the file.

    Raises:
        CheckpointError: If `modules.json` is damaged, or names a folder outside of the directory.
    """
    modules = read_json_if_any(os.path.join(directory, MODULES_FILE), _MODULES)
    return [(m["type"].rpartition(".")[2], os.path.join(directory, m["path"])) for m in modules]


def transformer_folder(directory: str) -> str:
    """Returns the folder of the module Transformer or StaticEmbedding, which reads the text.

    Without `modules.json`, it is the directory itself.

    Raises:
        CheckpointError: See `read_modules`.
    """
    kinds = ("Transformer", "StaticEmbedding")
    folders = (folder for kind, folder in read_modules(directory) if kind.endswith(kinds))
    return next(folders, directory)


def shared_options(directory: str) -> dict[str, Any]:
    """Returns `max_length`, `prompts` and `default_prompt_name`, those that the files have.

    Raises:
        CheckpointError: If a file is damaged.
    """
    path = os.path.join(transformer_folder(directory), TRANSFORMER_FILE)
    longest = read_json_if_any(path, _TRANSFORMER).get("max_seq_length")
    values = read_json_if_any(os.path.join(directory, MODEL_FILE), _MODEL)
    options = {"max_length": longest} if longest else {}
    return options | {name: values[name] for name in PROMPT_OPTIONS if name in values}


def write_shared(
    model: Any, directory: str, modules: Sequence[tuple[str, str]], **values: Any
) -> None:
    """Writes the files, with the length and the prompts of a model.

    `modules` are the type and the path of each; `values` further entries of
    `config_sentence_transformers.json`.
    """
    entries = [
        {"idx": index, "name": str(index), "path": path, "type": kind}
        for index, (kind, path) in enumerate(modules)
    ]
    write_modules(entries, os.path.join(directory, MODULES_FILE))
    # The tokenizer's files specify whether text is lowercased.
    limits = {"max_seq_length": model.max_length, "do_lower_case": False}
    write_modules(limits, os.path.join(directory, TRANSFORMER_FILE))
    prompts = {name: getattr(model, name) for name in PROMPT_OPTIONS}
    write_modules({**prompts, **values}, os.path.join(directory, MODEL_FILE))


def write_modules(values: Any, path: str) -> None:
    """Writes a JSON file, and its folder if there is none."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, values)
