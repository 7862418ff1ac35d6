"""TensorFlow checkpoints by name: google-research/bert's `bert_model.ckpt.{index,data-*}`.

TensorFlow itself compares each block and each tensor with its checksum.
"""

import glob
import math
import os
import re

import numpy as np
import tensorflow as tf

from bert_tf.errors import CheckpointError

# Written by the original's optimizer and loop; not part of the network.
_TRAINING_STATE = ("adam_m", "adam_v", "global_step")
# Present in every checkpoint of `tf.train.Checkpoint`, and in no other.
OBJECT_GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
# What TensorFlow's reader raises over a damaged file; it turns some codes into Python's errors.
_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError, KeyError, TypeError)


class Tf1Source:
    """Reads one TF1 checkpoint; optimizer slots and the step are left out. A `TensorSource`.

    Args:
        prefix: The path without `.index`.

    Raises:
        CheckpointError: If the files are missing or damaged.
    """

    format = "tf1"

    def __init__(self, prefix: str):
        self.path = prefix
        self._reader = open_reader(prefix)
        self.shapes = {
            name: tuple(shape)
            for name, shape in self._reader.get_variable_to_shape_map().items()
            if not name.endswith(_TRAINING_STATE)
        }
        size = sum(os.path.getsize(path) for path in glob.glob(f"{glob.escape(prefix)}.data-*"))
        if sum(math.prod(shape) for shape in self.shapes.values()) > size:
            raise CheckpointError(f"{prefix}: the index announces more numbers than there are")

    def read(self, name: str) -> np.ndarray:
        return read_tensor(self._reader, name, self.path)


def open_reader(prefix: str):
    """TensorFlow's reader of a checkpoint.

    Raises:
        CheckpointError: If the files are missing or damaged.
    """
    try:
        return tf.train.load_checkpoint(prefix)
    except _ERRORS as error:
        raise CheckpointError(
            f"{prefix} is not a whole TensorFlow checkpoint ({error}). Expected {prefix}.index and "
            f"{prefix}.data-00000-of-00001."
        ) from None


def read_tensor(reader, name: str, prefix: str):
    """One tensor of a reader.

    Raises:
        CheckpointError: If its bytes are missing or differ from their checksum.
    """
    try:
        return reader.get_tensor(name)
    except _ERRORS as error:
        raise CheckpointError(f"{prefix}: tensor {name} is damaged ({error})") from None


def checkpoint_prefix(path: str) -> str | None:
    """The checkpoint's prefix for a prefix, an `.index` file or a directory; None if there is none.

    Of several checkpoints in a directory it is the one with the highest step in its name. The file
    `checkpoint`, which may name paths elsewhere, is not asked.
    """
    if os.path.exists(f"{path}.index"):
        return path
    if path.endswith(".index") and os.path.exists(path):
        return path.removesuffix(".index")
    found = glob.glob(os.path.join(glob.escape(path), "*ckpt*.index"))
    return max(found, key=_step).removesuffix(".index") if found else None


def _step(path):
    number = re.search(r"-(\d+)\.index$", path)
    return (int(number.group(1)) if number else -1, path)
