"""Exports a model directory for the server, in a process of its own.

    python -m bert_tf.serving.server.export_for_server MODEL_DIR EXPORT_DIR [pairs]

The last line of its output is JSON: `{"path": ...}`, or `{"error": ...}` of a user's mistake.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bert_tf import ops
from bert_tf.checkpoints.model_weights import HEAD_ARCHITECTURES, SPECS, model_class
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.errors import UserError
from bert_tf.serving.export import export


def export_for_server(path: str, directory: str, pairs: str = "") -> str:
    """Writes the SavedModel of a model directory, padding-free where the operations are built.

    Args:
        path: The model directory.
        directory: Where version 1 goes.
        pairs: "pairs" for a classifier of two texts.

    Returns:
        Its path.

    Raises:
        UserError: If nothing says which task the model is for, or it cannot be exported.
    """
    model = _class_of(path).from_pretrained(path)
    portable = ops.active_backend() != "native"
    if not portable:
        model.freeze_for_inference()
    return export(model, directory, version=1, portable=portable, pairs=pairs == "pairs")


def _class_of(path):
    pretrained = open_pretrained(path)
    if pretrained.class_name in SPECS:
        return model_class(pretrained.class_name)
    for architecture in pretrained.architectures:
        for name, spec in SPECS.items():
            if architecture in HEAD_ARCHITECTURES and architecture in spec.architectures:
                return model_class(name)
    raise UserError(
        "A model of a task was expected, such as a classifier that save_pretrained wrote. "
        f"Received: {pretrained.class_name or list(pretrained.architectures)}. Open it as the "
        "model that you want, and save or export that."
    )


if __name__ == "__main__":
    try:
        answer = {"path": export_for_server(*sys.argv[1:])}
    except UserError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
