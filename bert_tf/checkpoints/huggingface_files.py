"""The weights of a Hugging Face directory, whichever of its file formats they are in."""

import json
import os

from bert_tf.checkpoints.safetensors_source import SafetensorsSource
from bert_tf.checkpoints.tensor_source import JoinedSource, TensorSource
from bert_tf.checkpoints.torch_source import TorchSource
from bert_tf.errors import CheckpointError


def _tf_h5(path):
    from bert_tf.checkpoints.tf_h5_source import TfH5Source

    return TfH5Source(path)


# The first that is there is read.
_FILES = {
    "model.safetensors": SafetensorsSource,
    "model.safetensors.index.json": SafetensorsSource,
    "pytorch_model.bin": TorchSource,
    "pytorch_model.bin.index.json": TorchSource,
    "tf_model.h5": _tf_h5,
}


def weights_file(directory: str) -> str | None:
    """The file of a Hugging Face directory that holds the weights, or lists who does."""
    for name in _FILES:
        path = os.path.join(directory, name)
        if os.path.isfile(path):
            return path
    return None


def open_weights(path: str) -> TensorSource:
    """Opens one weights file of Hugging Face, or the shards that an index lists.

    Raises:
        CheckpointError: If a file is missing or damaged, or the index leaves its directory.
    """
    if path.endswith(".index.json"):
        return _sharded(path)
    if path.endswith(".safetensors"):
        return SafetensorsSource(path)
    if path.endswith((".bin", ".pt", ".pth")):
        return TorchSource(path)
    return _tf_h5(path)


def _sharded(path):
    directory = os.path.dirname(path)
    try:
        with open(path, encoding="utf-8") as file:
            index = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: a JSON file was expected. Received: {error}") from None
    weight_map = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{path}: expected a `weight_map` from tensors to files")
    shards = {}
    for tensor, name in weight_map.items():
        if not isinstance(name, str) or os.path.basename(name) != name or name in ("", ".", ".."):
            raise CheckpointError(
                f"{path}: expected files beside the index. Received: {tensor} in {name!r}"
            )
        if not name.endswith((".safetensors", ".bin")):
            raise CheckpointError(
                f"{path}: expected .safetensors or .bin files. Received: {name!r}"
            )
        if name not in shards:
            if not os.path.isfile(os.path.join(directory, name)):
                raise CheckpointError(f"{path} lists {name}, which is missing. Fetch it too.")
            shards[name] = open_weights(os.path.join(directory, name))
        if tensor not in shards[name].shapes:
            raise CheckpointError(f"{path} lists {tensor} in {name}, where it is not")
    return JoinedSource(path, list(shards.values()))
