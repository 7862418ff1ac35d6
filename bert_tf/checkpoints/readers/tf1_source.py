"""Reads TensorFlow 1 checkpoints: google-research/bert's `bert_model.ckpt.{index,data-*}`."""

import glob
import os
import re

from bert_tf.checkpoints.readers.tensor_bundle import TensorBundle

# Variables of the original program's optimizer and training loop.
_TRAINING_STATE = ("adam_m", "adam_v", "global_step")
# Only the checkpoints of `tf.train.Checkpoint` have this key.
OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"


class Tf1Source(TensorBundle):
    """Reads one TF1 checkpoint without optimizer slots and the step. A `TensorSource`."""

    format = "tf1"

    def __init__(self, prefix: str):
        super().__init__(prefix)
        for name in [name for name in self.shapes if name.endswith(_TRAINING_STATE)]:
            del self.shapes[name]


def checkpoint_prefix(path: str) -> str | None:
    """Returns the prefix of the checkpoint at a path, or None if there is none.

    The path is a prefix, an `.index` file or a directory. In a directory with several checkpoints,
    the one with the highest step in its name is used. The file `checkpoint` is ignored, because it
    may name other directories.
    """
    if os.path.exists(f"{path}.index"):
        return path
    if path.endswith(".index") and os.path.exists(path):
        return path.removesuffix(".index")
    if not os.path.isdir(path):
        return None
    found = glob.glob(os.path.join(glob.escape(path), "*ckpt*.index"))
    return max(found, key=_step).removesuffix(".index") if found else None


def _step(path):
    number = re.search(r"-(\d+)\.index$", path)
    return (int(number.group(1)) if number else -1, path)
