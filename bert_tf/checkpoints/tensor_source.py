"""Named tensors in a file, whatever the file's format."""

import os
from typing import Protocol

import numpy as np

from bert_tf.errors import CheckpointError


class TensorSource(Protocol):
    """What a reader of one file format offers.

    Attributes:
        path: The file or directory, for messages.
        names_attribute: Which field of `Weight` holds this format's names: "huggingface" or "tf1".
        shapes: Shape of every tensor, by name; read without loading the tensors.
    """

    path: str
    names_attribute: str
    shapes: dict[str, tuple[int, ...]]

    def read(self, name: str) -> np.ndarray:
        """The values of one tensor, as float32 where the file has floats."""


def huggingface_source(directory: str) -> TensorSource:
    """The safetensors file of a Hugging Face directory.

    Raises:
        CheckpointError: If there is none, or it cannot be read.
    """
    from bert_tf.checkpoints.safetensors_source import SafetensorsSource

    path = os.path.join(directory, "model.safetensors")
    if os.path.exists(path):
        return SafetensorsSource(path)
    raise CheckpointError(
        f"Expected model.safetensors in {directory}. Found: {sorted(os.listdir(directory))}"
    )
