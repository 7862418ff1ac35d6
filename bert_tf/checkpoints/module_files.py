"""The list of modules in a directory of sentence-transformers or of PyLate.

Reference: sentence-transformers, `modules.json` of its saved models.
"""

import os

from bert_tf.json_files import read_json
from bert_tf.json_schema import Kind, is_file_name, list_of, object_of, text

MODULES_FILE = "modules.json"
LENGTH_FILE = "sentence_bert_config.json"
PROMPTS_FILE = "config_sentence_transformers.json"
IDENTITY = "torch.nn.modules.linear.Identity"

_FOLDER = Kind(
    "empty or the path of a folder in the directory",
    lambda value: (
        value == ""
        or (isinstance(value, str) and all(map(is_file_name, value.rstrip("/").split("/"))))
    ),
)
_MODULES = list_of(object_of({"type": text(), "path": _FOLDER}), most=100)


def read_modules(directory: str) -> list[tuple[str, str]]:
    """Returns the type and the directory of each module; none if there is no `modules.json`.

    Raises:
        CheckpointError: If the file is damaged, or names a folder outside of the directory.
    """
    path = os.path.join(directory, MODULES_FILE)
    if not os.path.exists(path):
        return []
    modules = read_json(path, _MODULES)
    return [(m["type"].rpartition(".")[2], os.path.join(directory, m["path"])) for m in modules]
