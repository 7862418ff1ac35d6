"""Exports a model directory for the server; run as a separate process.

    python -m bert_tf.server.export_for_server MODEL_DIR EXPORT_DIR PRECISION [pairs|single [...]]

Further arguments are packages that register tasks.

The last line of the output is JSON: `{"path": ...}`, or `{"error": ...}` for a `UserError`.
"""

import importlib
import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bert_tf import ops
from bert_tf.checkpoints import find_task_class
from bert_tf.errors import UserError
from bert_tf.serving import export


def export_for_server(
    path: str, directory: str, precision: str, pairs: str = "", *packages: str
) -> str:
    """Writes the SavedModel of a model directory as version 1, and returns its path.

    It is padding-free if the operations are built, and computes in the precision that
    `optimize_for_inference` takes, unless it is quantized already. `pairs` is "pairs" for a
    classifier whose inputs are two texts. `packages` register tasks; they are those that the
    server's process knows, because a model's files must not name modules to import.

    Raises:
        UserError: If the model's task is unknown or it cannot be exported.
    """
    for package in packages:
        importlib.import_module(package)
    model = find_task_class(path).from_pretrained(path)
    portable = ops.active_backend() != "native"
    if not portable and model.backbone.quantization is None:
        model.optimize_for_inference(precision)
    elif not portable:
        model.prepack_for_inference()
    return export(model, directory, version=1, portable=portable, pairs=pairs == "pairs")


if __name__ == "__main__":
    try:
        answer = {"path": export_for_server(*sys.argv[1:])}
    except UserError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
