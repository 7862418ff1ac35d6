"""Reads and writes the files of sentence-transformers' sparse encoders: pooling and limit.

Reference: sentence-transformers, `SparseEncoder` and `SpladePooling`.
"""

import os

from bert_tf.base.file_errors import file_error
from bert_tf.base.json_files import read_json_if_any
from bert_tf.base.json_schema import integer, may_lack, object_of, optional, text
from bert_tf.models.task_files import TaskFiles
from bert_tf.tasks.shared import module_files

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


class SparseEmbeddingFiles(TaskFiles):
    """The modules of a `SparseEncoder`: a masked language model and its pooling."""

    def read(self, opened):
        kinds = [kind for kind, _ in opened.modules]
        if _POOLING not in kinds:
            return None
        if kinds not in (["MLMTransformer", _POOLING], ["Transformer", _POOLING]):
            path = os.path.join(opened.path, module_files.MODULES_FILE)
            expected = f"be MLMTransformer or Transformer, and {_POOLING}"
            raise file_error(f"`type` in {path}", expected, kinds)
        (_, transformer), (_, pooling) = opened.modules
        path = os.path.join(transformer, module_files.TRANSFORMER_FILE)
        task = read_json_if_any(path, _TRANSFORMER).get("transformer_task", "feature-extraction")
        if kinds[0] == "Transformer" and task != _TASK:
            raise file_error(f"`transformer_task` in {path}", f"be {_TASK!r}", repr(task))
        values = read_json_if_any(os.path.join(pooling, "config.json"), _POOLING_FILE)
        model = read_json_if_any(os.path.join(opened.path, module_files.MODEL_FILE), _MODEL)
        return {
            "pooling": values.get("pooling_strategy", "max"),
            "activation": values.get("activation_function", "relu"),
            "max_active_dims": model.get("max_active_dims"),
            **module_files.shared_options(opened.path),
        }

    def write(self, model, directory, format):
        pooling = {
            "pooling_strategy": model.pooling,
            "activation_function": model.activation,
            "embedding_dimension": model.vector_size,
        }
        module_files.write_modules(pooling, os.path.join(directory, _FOLDER, "config.json"))
        modules = [(_TYPES + "MLMTransformer", ""), (_TYPES + _POOLING, _FOLDER)]
        values = {"model_type": "SparseEncoder", "similarity_fn_name": "dot"}
        if model.max_active_dims is not None:
            values["max_active_dims"] = model.max_active_dims
        module_files.write_shared(model, directory, modules, **values)
