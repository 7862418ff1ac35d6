"""TF1 checkpoints of google-research/bert: `bert_model.ckpt.{index,data-*}`."""

import glob
import os

import numpy as np
import tensorflow as tf

from bert_tf.errors import CheckpointError

# Written by the original's optimizer and loop; not part of the network.
_TRAINING_STATE = ("adam_m", "adam_v", "global_step")


class Tf1Source:
    """Reads one TF1 checkpoint; optimizer slots and the step are left out. A `TensorSource`.

    Args:
        prefix: The path without `.index`.

    Raises:
        CheckpointError: If the files are missing or damaged.
    """

    names_attribute = "tf1"

    def __init__(self, prefix: str):
        self.path = prefix
        try:
            self._reader = tf.train.load_checkpoint(prefix)
        except (tf.errors.OpError, ValueError) as error:
            raise CheckpointError(
                f"{prefix} is not a whole TF1 checkpoint ({error}). Expected {prefix}.index and "
                f"{prefix}.data-00000-of-00001."
            ) from None
        self.shapes = {
            name: tuple(shape)
            for name, shape in self._reader.get_variable_to_shape_map().items()
            if not name.endswith(_TRAINING_STATE)
        }

    def read(self, name: str) -> np.ndarray:
        try:
            return self._reader.get_tensor(name)
        except tf.errors.OpError as error:
            raise CheckpointError(f"{self.path}: tensor {name} is damaged ({error})") from None


def checkpoint_prefix(path: str) -> str | None:
    """The checkpoint's prefix for a prefix, an `.index` file or a directory; None if there is none."""
    if os.path.exists(f"{path}.index"):
        return path
    if path.endswith(".index") and os.path.exists(path):
        return path.removesuffix(".index")
    found = sorted(glob.glob(os.path.join(glob.escape(path), "*.ckpt*.index")))
    return found[-1].removesuffix(".index") if found else None
