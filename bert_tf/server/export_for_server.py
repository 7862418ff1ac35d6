"""Exports a model directory for the server; run as a separate process.

    python -m bert_tf.server.export_for_server MODEL_DIR EXPORT_DIR PRECISION [pairs]

The last line of the output is JSON: `{"path": ...}`, or `{"error": ...}` for a `UserError`.
"""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from bert_tf import ops
from bert_tf.checkpoints.model_weights import HEAD_ARCHITECTURES, SPECS, model_class
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.checkpoints.sentence_transformers import encoder_options
from bert_tf.errors import UserError
from bert_tf.serving.export import export


def export_for_server(path: str, directory: str, precision: str, pairs: str = "") -> str:
    """Writes the SavedModel of a model directory as version 1, and returns its path.

    It is padding-free if the operations are built, and computes in the precision that
    `optimize_for_inference` takes, unless it is quantized already. `pairs` is "pairs" for a
    classifier whose inputs are two texts.

    Raises:
        UserError: If the model's task is unknown or it cannot be exported.
    """
    model = class_of(path).from_pretrained(path)
    portable = ops.active_backend() != "native"
    if not portable and model.backbone.quantization is None:
        model.optimize_for_inference(precision)
    elif not portable:
        model.prepack_for_inference()
    return export(model, directory, version=1, portable=portable, pairs=pairs == "pairs")


def class_of(path: str) -> type:
    """Returns the class of the task model in a directory.

    Raises:
        UserError: If the model's task is unknown.
    """
    pretrained = open_pretrained(path)
    if pretrained.class_name in SPECS:
        return model_class(pretrained.class_name)
    for architecture in pretrained.architectures:
        for name, spec in SPECS.items():
            if architecture in HEAD_ARCHITECTURES and architecture in spec.architectures:
                return model_class(name)
    if encoder_options(pretrained.directory):
        return model_class("BertSentenceEncoder")
    raise UserError(
        "The model must be a task model, such as a classifier that `save_pretrained` wrote, "
        "or a directory of sentence-transformers. "
        f"Received: {pretrained.class_name or list(pretrained.architectures)}. Open it with the "
        "class of its task, then save or export it."
    )


if __name__ == "__main__":
    try:
        answer = {"path": export_for_server(*sys.argv[1:])}
    except UserError as error:
        answer = {"error": str(error)}
    print(json.dumps(answer))
