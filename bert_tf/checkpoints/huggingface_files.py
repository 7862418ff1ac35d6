"""Opens the weights of a Hugging Face directory, in any of its file formats.

Source: for the weights of the TensorFlow models of `transformers` (until version 4) 4.57,
`modeling_tf_utils.py` (`save_pretrained`, `tf_shard_checkpoint`).
"""

import os
import re

import numpy as np

from bert_tf.base.file_errors import file_error
from bert_tf.base.json_files import read_json
from bert_tf.base.json_schema import Kind, is_file_name, mapping_of, object_of
from bert_tf.base.tensor_source import JoinedSource, TensorSource
from bert_tf.checkpoints.readers.h5_file import H5File
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource
from bert_tf.checkpoints.readers.torch_source import TorchSource

# A dataset of tf_model.h5 has two names before the variable's own: the layer and the model.
STEPS_IN_H5 = 2
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


class TfVariablesSource:
    """Gives TensorFlow's variables the names of Hugging Face's PyTorch models. A `TensorSource`.

    A variable is named `<layer>/…/kernel:0`, with `layer_._0` for `layer.0` and `mlm___cls` for
    `cls`. Its kernels are `[in, out]`; PyTorch's, and so this reader's, are `[out, in]`.
    `leading_steps` precede the variable's own name in the names of the file: `STEPS_IN_H5` in a
    `tf_model.h5`, none in its shards and in safetensors files.
    """

    format = "huggingface"

    def __init__(self, file: H5File | SafetensorsSource, leading_steps: int = 0):
        self.path = file.path
        self._file = file
        self._variables = {}
        self.shapes = {}
        for variable, shape in file.shapes.items():
            name = pytorch_name(variable, leading_steps)
            if name is None or name in self._variables:  # the file has tied tables twice
                continue
            self._variables[name] = variable
            self.shapes[name] = shape[::-1] if _is_kernel(variable) else shape

    def read(self, name: str) -> np.ndarray:
        variable = self._variables[name]
        values = self._file.read(variable)
        return values.T if _is_kernel(variable) else values


def pytorch_name(variable: str, leading_steps: int = 0) -> str | None:
    """Returns the name in PyTorch of a variable whose name follows `leading_steps` other steps.

    Returns:
        None if there are no more steps.

    Example:
        >>> pytorch_name("bert/encoder/layer_._0/output/dense/kernel:0")
        'bert.encoder.layer.0.output.dense.weight'
    """
    steps = variable.removesuffix(":0").split("/")[leading_steps:]
    if not steps:
        return None
    steps[-1] = _LEAVES.get(steps[-1], steps[-1])
    steps = [re.sub(r"^[^/]*___", "", step).replace("_._", ".") for step in steps]
    return ".".join(steps)


def _is_kernel(variable):
    return variable.endswith("/kernel:0")


# The first file that exists is read.
_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "tf_model.h5",
    "tf_model.h5.index.json",
)

_SHARD = Kind(
    "the name of a .safetensors, .bin or .h5 file in the directory of the index",
    lambda name: is_file_name(name) and name.endswith((".safetensors", ".bin", ".h5")),
)
_INDEX = object_of({"weight_map": mapping_of(_SHARD, least=1)})


def weights_file(directory: str) -> str | None:
    """Returns the file of a Hugging Face directory that holds the weights or lists their shards."""
    return next(filter(os.path.isfile, (os.path.join(directory, name) for name in _FILES)), None)


def open_weights(path: str) -> TensorSource:
    """Opens one weights file of Hugging Face, or the shards that an index lists.

    Raises `CheckpointError` if a file is missing or damaged, or the index names a file outside its
    directory.
    """
    if path.endswith(".index.json"):
        return _sharded(path)
    if path.endswith(".safetensors"):
        source = SafetensorsSource(path)
        return TfVariablesSource(source) if source.holds_tf_variables else source
    if path.endswith((".bin", ".pt", ".pth")):
        return TorchSource(path)
    return TfVariablesSource(H5File(path), STEPS_IN_H5)


def folder_weights(folder: str) -> TensorSource:
    """Opens the weights in the folder of a module.

    Raises `CheckpointError` if a file is missing or damaged.
    """
    file = weights_file(folder)
    if file is None:
        raise file_error(folder, "hold the weights of its module", "no such file")
    return open_weights(file)


def _sharded(path):
    directory = os.path.dirname(path)
    shards = {}
    for tensor, name in read_json(path, _INDEX)["weight_map"].items():
        if name not in shards:
            shards[name] = _shard(path, os.path.join(directory, name))
        # TensorFlow's indexes begin every name with the model's, which the shards leave out.
        is_variable = isinstance(shards[name], TfVariablesSource)
        held = pytorch_name(tensor, leading_steps=1) if is_variable else tensor
        if held not in shards[name].shapes:
            received = f"{tensor:.200}, which {name} does not hold"
            raise file_error(path, "list the tensors of its files", received)
    return JoinedSource(path, list(shards.values()))


def _shard(index, path):
    if not os.path.isfile(path):
        received = f"{os.path.basename(path)}, which is missing. Download it too."
        raise file_error(index, "list existing files", received)
    return TfVariablesSource(H5File(path)) if path.endswith(".h5") else open_weights(path)
