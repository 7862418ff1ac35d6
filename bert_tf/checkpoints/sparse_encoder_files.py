"""Reads and writes the files of sentence-transformers' sparse encoders: pooling and limit.

Reference: sentence-transformers, `SparseEncoder` and `SpladePooling`.
"""

import os
from typing import Any

from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import integer, may_lack, object_of, optional, text
from bert_tf.checkpoints import module_files
from bert_tf.checkpoints.readers.file_errors import file_error

CLASS = "BertSparseEncoder"
_POOLING = "SpladePooling"
_FOLDER = "1_SpladePooling"
# Names of versions 5.0 to 5.3, which later versions read too.
_TYPES = "sentence_transformers.sparse_encoder.models."
_TASK = "fill-mask"
_POOLING_FILE = object_of(
    {"pooling_strategy": may_lack(text()), "activation_function": may_lack(text())}
)
_TRANSFORMER = object_of({"transformer_task": may_lack(text())})
_MODEL = object_of({"max_active_dims": optional(integer(least=1))})


def class_and_options(directory: str) -> tuple[str | None, dict[str, Any]]:
    """Returns the class and its options, or None and none if it is no sparse encoder's directory.

    Raises:
        CheckpointError: If a file is damaged, or there are other modules than a masked language
            model and its pooling.
    """
    modules = module_files.read_modules(directory)
    kinds = [kind for kind, _ in modules]
    if _POOLING not in kinds:
        return None, {}
    if kinds not in (["MLMTransformer", _POOLING], ["Transformer", _POOLING]):
        path = os.path.join(directory, module_files.MODULES_FILE)
        expected = f"be MLMTransformer or Transformer, and {_POOLING}"
        raise file_error(f"`type` in {path}", expected, kinds)
    path = os.path.join(modules[0][1], module_files.TRANSFORMER_FILE)
    task = _read(path, _TRANSFORMER).get("transformer_task", "feature-extraction")
    if kinds[0] == "Transformer" and task != _TASK:
        raise file_error(f"`transformer_task` in {path}", f"be {_TASK!r}", repr(task))
    pooling = _read(os.path.join(modules[1][1], "config.json"), _POOLING_FILE)
    model = _read(os.path.join(directory, module_files.MODEL_FILE), _MODEL)
    return CLASS, {
        "pooling": pooling.get("pooling_strategy", "max"),
        "activation": pooling.get("activation_function", "relu"),
        "max_active_dims": model.get("max_active_dims"),
        **module_files.shared_options(directory),
    }


def write_modules(encoder: Any, directory: str) -> None:
    """Writes the files that sentence-transformers needs in addition to those of the model."""
    pooling = {
        "pooling_strategy": encoder.pooling,
        "activation_function": encoder.activation,
        "embedding_dimension": encoder.vector_size,
    }
    module_files.write(pooling, os.path.join(directory, _FOLDER, "config.json"))
    modules = [(_TYPES + "MLMTransformer", ""), (_TYPES + _POOLING, _FOLDER)]
    values = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
    if encoder.max_active_dims is not None:
        values["max_active_dims"] = encoder.max_active_dims
    module_files.write_shared(encoder, directory, modules, **values)


def _read(path, kind):
    return read_json(path, kind) if os.path.exists(path) else {}
