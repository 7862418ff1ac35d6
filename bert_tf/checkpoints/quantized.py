"""Quantized weights in this package's own format.

Instead of one float32 tensor the file holds an int8 tensor with the same shape and name, and its
float32 scales with the suffix `_scale`: one per column of a kernel `[in, out]`, one per row of the
word embeddings `[V, H]`. A calibrated kernel also has a float32 tensor `[in]` with the suffix
`_smoothing`; without it, the smoothing is 1.
"""

from collections.abc import Callable, Iterator

import keras
import numpy as np

from bert_tf.checkpoints.readers.file_errors import tensor_error
from bert_tf.checkpoints.readers.tensor_source import TensorSource
from bert_tf.layers.kernels.int8_kernel import Int8Kernel

_SCALE = "_scale"
SMOOTHING = "_smoothing"


def quantized_tensors(backbone) -> dict[str, np.ndarray]:
    """Returns the tensors of a backbone's integers; empty if it is not quantized."""
    tensors = {}
    for name, read, _ in _places(backbone):
        tensors[name], tensors[name + _SCALE], *smoothing = (part.numpy() for part in read())
        if smoothing and np.any(smoothing[0] != 1.0):
            tensors[name + SMOOTHING] = smoothing[0]
    return tensors


def quantized_variables(backbone) -> list[keras.Variable]:
    """Returns the variables from which `quantized_tensors` is computed."""
    if backbone.quantization is None:
        return []
    embeddings = backbone.embeddings
    variables = [embeddings.word_embeddings, embeddings.word_embeddings_scale]
    for dense in backbone.encoder.dense_layers().values():
        if isinstance(dense.kernel_form, Int8Kernel):
            variables += dense.kernel_form.variables
    return variables


def restore_quantized(backbone, source: TensorSource) -> list[str]:
    """Reads the integers and scales of a quantized backbone.

    Returns:
        The names of the tensors that were read.

    Raises:
        CheckpointError: If a tensor is missing, damaged or of another shape or dtype.
    """
    names = []
    for name, read, write in _places(backbone):
        parts = []
        for part_name, like in zip((name, name + _SCALE, name + SMOOTHING), read()):
            if part_name == name + SMOOTHING and part_name not in source.shapes:
                continue
            like = np.asarray(like)
            shape = source.shapes.get(part_name, "no such tensor")
            if shape != like.shape:
                raise tensor_error(source, part_name, f"have shape {like.shape}", shape)
            part = source.read(part_name)
            is_finite = part.dtype.kind != "f" or np.isfinite(part).all()
            if part.dtype != like.dtype or not is_finite:
                received = f"{part.dtype}{'' if is_finite else ' with NaN or infinity'}"
                expected = f"hold finite {like.dtype} numbers"
                raise tensor_error(source, part_name, expected, received)
            parts.append(np.array(part))  # not a view of the file
            names.append(part_name)
        write(*parts)
    return names


def _places(backbone) -> Iterator[tuple[str, Callable, Callable]]:
    """Yields the name of each quantized weight, and functions that read and replace its parts."""
    if backbone.quantization is None:
        return
    embeddings = backbone.embeddings
    yield (
        "embeddings.word_embeddings",
        lambda: (embeddings.word_embeddings.value, embeddings.word_embeddings_scale.value),
        embeddings.set_quantized_words,
    )
    for path, dense in backbone.encoder.dense_layers().items():
        if isinstance(dense.kernel_form, Int8Kernel):
            yield f"encoder.{path}.kernel", dense.kernel_form.unpacked, dense.kernel_form.assign
