"""Reads the weights of `transformers`' TensorFlow models (until version 4) in its file formats.

Reference: transformers 4.57, `modeling_tf_utils.py` (`save_pretrained`, `tf_shard_checkpoint`).
"""

import re

import numpy as np

from bert_tf.checkpoints.readers.h5_file import H5File
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource

# A dataset of tf_model.h5 has two names before the variable's own: the layer and the model.
STEPS_IN_H5 = 2
_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


class TfVariablesSource:
    """Gives TensorFlow's variables the names of Hugging Face's PyTorch models. A `TensorSource`.

    A variable is named `<layer>/…/kernel:0`, with `layer_._0` for `layer.0` and `mlm___cls` for
    `cls`. Its kernels are `[in, out]`; PyTorch's, and so this reader's, are `[out, in]`.

    Args:
        file: The opened file.
        leading_steps: How many steps precede the variable's own name in the names of the file:
            `STEPS_IN_H5` in a `tf_model.h5`, none in its shards and in safetensors files.
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
