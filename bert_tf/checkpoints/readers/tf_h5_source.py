"""Reads `tf_model.h5`: the weights of `transformers`' TensorFlow models (until version 4)."""

import re

import numpy as np

from bert_tf.checkpoints.readers.h5_file import H5File

_LEAVES = {"kernel": "weight", "gamma": "weight", "beta": "bias", "embeddings": "weight"}


class TfH5Source:
    """Reads one `tf_model.h5` under the names of Hugging Face's PyTorch models. A `TensorSource`.

    The file's datasets have names such as `<layer>/<model>/<layer>/…/kernel:0`, with `layer_._0`
    for `layer.0` and `mlm___cls` for `cls`. Its kernels are `[in, out]`; PyTorch's, and so this
    reader's, are `[out, in]`.
    """

    format = "huggingface"

    def __init__(self, path: str):
        self.path = path
        self._file = H5File(path)
        self._datasets = {}
        self.shapes = {}
        for dataset, shape in self._file.shapes.items():
            name = _pytorch_name(dataset)
            if name is None or name in self._datasets:  # the file has tied tables twice
                continue
            self._datasets[name] = dataset
            self.shapes[name] = shape[::-1] if _is_kernel(dataset) else shape

    def read(self, name: str) -> np.ndarray:
        dataset = self._datasets[name]
        values = self._file.read(dataset)
        return values.T if _is_kernel(dataset) else values


def _is_kernel(dataset):
    return dataset.endswith("/kernel:0")


def _pytorch_name(dataset):
    steps = dataset.removesuffix(":0").split("/")[2:]
    if not steps:
        return None
    steps[-1] = _LEAVES.get(steps[-1], steps[-1])
    steps = [re.sub(r"^[^/]*___", "", step).replace("_._", ".") for step in steps]
    return ".".join(steps)
